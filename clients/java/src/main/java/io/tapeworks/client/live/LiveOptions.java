package io.tapeworks.client.live;

import io.tapeworks.client.dbn.Dbn;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLSocketFactory;

/** What a live session requests, and how it goes on where it breaks. Immutable: each method returns another. */
public record LiveOptions(
        String host,
        int port,
        String key,
        String dataset,
        List<String> schemas,
        List<String> symbols,
        long start,
        boolean snapshot,
        String slowReader,
        boolean tsOut,
        SSLSocketFactory tls,
        Waiting waiting,
        Duration patience,
        Duration silence,
        int attempts,
        Duration pause,
        List<Server> others,
        WhenRefused whenRefused) {
    /** The key of {@code tapeworks demo}. */
    public static final String DEMO_KEY = "db-TapeworksDemoKey0000000000000";

    private static final int KEY_LENGTH = 32;

    /** Where a live server listens. */
    public record Server(String host, int port) {
        /** @throws IllegalArgumentException there is no such port */
        public Server {
            check(port > 0 && port < 1 << 16, "port " + port + ": expected 1 to 65535");
        }

        /** An address such as {@code 127.0.0.1:13000} or {@code [::1]:13000}. */
        static Server parse(String address) {
            int colon = address.lastIndexOf(':');
            String host = colon < 0 ? "" : address.substring(0, colon).strip();
            String port = address.substring(colon + 1).strip();
            boolean isWhole = !host.isEmpty() && port.matches("[0-9]{1,5}");
            check(isWhole, "'" + address.strip() + "' is not an address with a port, such as 127.0.0.1:13000");
            boolean isBracketed = host.startsWith("[") && host.endsWith("]");
            return new Server(isBracketed ? host.substring(1, host.length() - 1) : host, Integer.parseInt(port));
        }

        @Override
        public String toString() {
            return (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port;
        }
    }

    /** How a client waits for the next bytes. */
    public enum Waiting {
        /** The thread sleeps until the system has some. */
        BLOCKING,
        /** The thread looks again and again: some microseconds sooner, for a core of its own. Not with TLS. */
        BUSY
    }

    /** What to do when every server refuses to replay the records since the session was lost. */
    public enum WhenRefused {
        /** Fail with the server's reason. */
        STOP,
        /** Continue with the present; {@code RecordHandler.onMissing} reports the hole. */
        CONTINUE
    }

    /** @throws IllegalArgumentException an option cannot be used; the message says which */
    public LiveOptions {
        schemas = List.copyOf(schemas);
        symbols = List.copyOf(symbols);
        others = List.copyOf(others);
        check(port > 0 && port < 1 << 16, "port " + port + ": expected 1 to 65535");
        check(key.length() == KEY_LENGTH && key.startsWith("db-"), "a key has 32 characters and begins with db-");
        check(!schemas.isEmpty(), "no schema");
        Map<Integer, String> types = new HashMap<>();
        for (String schema : schemas) {
            int type = Dbn.recordTypeOf(schema);
            check(type >= 0, "'" + schema + "' is no schema");
            String other = types.put(type, schema);
            check(other == null, schema + " and " + other + " have records that look alike: use a session for each");
        }
        for (String text : symbols) {
            check(isSymbol(text), "'" + text + "' is no symbol");
        }
        check(!snapshot || start < 0, "a session begins with a snapshot or with a start, not with both");
        check(isPlain(dataset), "'" + dataset + "' is no dataset");
        check(slowReader == null || List.of("warn", "skip", "conflate").contains(slowReader),
                "slow reader '" + slowReader + "': expected warn, skip or conflate");
        check(tls == null || waiting == Waiting.BLOCKING, "TLS does not go with busy waiting");
        check(attempts >= 0, "attempts " + attempts + ": expected 0 or more");
        check(!patience.isNegative() && !patience.isZero(), "patience " + patience + ": expected more than nothing");
        check(!silence.isNegative() && !silence.isZero(), "silence " + silence + ": expected more than nothing");
        check(!pause.isNegative(), "pause " + pause + ": expected no less than nothing");
    }

    /** All symbols of some schemas, of the plant of {@code tapeworks demo} unless said otherwise, from now on. */
    public static LiveOptions of(String host, int port, String... schemas) {
        return new LiveOptions(host, port, DEMO_KEY, "TAPEWORKS.DEMO", List.of(schemas), List.of(), -1, false, null, false, null,
                Waiting.BLOCKING, Duration.ofSeconds(10), Duration.ofSeconds(90), 10, Duration.ofMillis(100), List.of(), WhenRefused.STOP);
    }

    /**
     * As {@link #of(String, int, String...)}, by address: host and port. Several with commas between, such as
     * {@code "10.0.0.1:13000,10.0.0.2:13000"}, are servers with the same records, such as the two plants of a pair: see
     * {@link #withOtherServer}.
     *
     * @throws IllegalArgumentException an address has no port, or an option cannot be used
     */
    public static LiveOptions of(String addresses, String... schemas) {
        LiveOptions options = null;
        for (String address : addresses.split(",", -1)) {
            Server server = Server.parse(address);
            options = options == null ? of(server.host(), server.port(), schemas) : options.withOtherServer(server.host(), server.port());
        }
        return options;
    }

    /** The key: 32 characters that begin with {@code db-}. It is never sent. */
    public LiveOptions withKey(String key) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** The dataset. */
    public LiveOptions withDataset(String dataset) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** Only these symbols. */
    public LiveOptions withSymbols(String... symbols) {
        return new LiveOptions(host, port, key, dataset, schemas, List.of(symbols), start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** A replay from this time on, in ns since the epoch, UTC, then the present. */
    public LiveOptions withStart(long start) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** The state of now first. */
    public LiveOptions withSnapshot() {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, true, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** What the server does where this end is slow: {@code warn}, {@code skip} or {@code conflate}. */
    public LiveOptions withSlowReader(String behaviour) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, behaviour, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** Each record says when it was sent. */
    public LiveOptions withTsOut() {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, true, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** TLS, with the server's name checked. */
    public LiveOptions withTls(SSLSocketFactory tls) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** How to wait for bytes. */
    public LiveOptions withWaiting(Waiting waiting) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** How long the server may take to connect and to answer, and be silent later on; it sends a heartbeat every 30 s. */
    public LiveOptions withPatience(Duration answers, Duration silence) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, answers, silence, attempts, pause, others, whenRefused);
    }

    /** How often in a row to connect again without a record between, 0: never; and how long to wait first. It doubles, up to 10 s. */
    public LiveOptions withReconnects(int attempts, Duration pause) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /** What to do when every server refuses to replay the records since the session was lost. */
    public LiveOptions withWhenRefused(WhenRefused whenRefused) {
        return new LiveOptions(host, port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, others, whenRefused);
    }

    /**
     * Another server with the same records, such as the other plant of a pair. The client connects to the first that serves; when the session
     * is lost it goes on at the next one that serves, around.
     */
    public LiveOptions withOtherServer(String host, int port) {
        List<Server> all = new ArrayList<>(others);
        all.add(new Server(host, port));
        return new LiveOptions(this.host, this.port, key, dataset, schemas, symbols, start, snapshot, slowReader, tsOut, tls, waiting, patience, silence, attempts, pause, all, whenRefused);
    }

    /** How many servers there are. */
    int servers() {
        return others.size() + 1;
    }

    /** The server of a number: 0 is the first, and behind the last comes the first again. */
    Server server(int number) {
        int at = number % servers();
        return at == 0 ? new Server(host, port) : others.get(at - 1);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalArgumentException(what);
        }
    }

    /** Whether it cannot end its place in a line of the protocol. */
    private static boolean isPlain(String text) {
        return !text.isEmpty() && text.chars().allMatch(c -> c > ' ' && c < 0x7F && c != '|' && c != ',' && c != '=');
    }

    /** A symbol may have spaces inside and an equals sign, as that of a unit has. */
    private static boolean isSymbol(String text) {
        return !text.isBlank() && text.equals(text.strip()) && text.chars().allMatch(c -> c >= ' ' && c < 0x7F && c != '|' && c != ',');
    }

    /** Without the key. */
    @Override
    public String toString() {
        StringBuilder servers = new StringBuilder();
        for (int at = 0; at < servers(); at++) {
            servers.append(at == 0 ? "" : ",").append(server(at));
        }
        return "LiveOptions(" + servers + ", " + dataset + ", " + schemas + ")";
    }
}
