package io.tapeworks.client.live;

import io.tapeworks.client.dbn.Dbn;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import javax.net.ssl.SSLSocketFactory;

/**
 * The settings of a live session: servers, key, subscriptions and timeouts. Immutable.
 *
 * <pre>{@code
 * LiveOptions options = LiveOptions.builder()
 *         .servers("127.0.0.1:13000")
 *         .key(System.getenv("TAPEWORKS_KEY"))
 *         .schemas("mbo")
 *         .build();
 * }</pre>
 */
public final class LiveOptions {
    /** The key that {@code tapeworks demo} accepts. */
    public static final String DEMO_KEY = "db-TapeworksDemoKey0000000000000";

    private static final int KEY_LENGTH = 32;

    /** Host and port of a live server. */
    public record Server(String host, int port) {
        /** @throws IllegalArgumentException the port is out of range */
        public Server {
            check(port > 0 && port < 1 << 16, "port " + port + ": expected 1 to 65535");
        }

        /** Parses an address such as {@code 127.0.0.1:13000} or {@code [::1]:13000}. */
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
        /** The thread sleeps until bytes arrive. */
        BLOCKING,
        /** The thread polls without sleeping: some microseconds faster, at the cost of a core. Not available with TLS. */
        BUSY
    }

    /** What to do when every server refuses to replay the records since the session was lost. */
    public enum WhenRefused {
        /** Fail with the server's reason. */
        STOP,
        /** Continue with live records; {@code RecordHandler.onMissing} reports the hole. */
        CONTINUE
    }

    final List<Server> servers;
    final String key;
    final String dataset;
    final List<String> schemas;
    final List<String> symbols;
    final long start;
    final boolean snapshot;
    final String slowReader;
    final boolean tsOut;
    final SSLSocketFactory tls;
    final Waiting waiting;
    final Duration connectTimeout;
    final Duration answerTimeout;
    final Duration silenceTimeout;
    final int attempts;
    final Duration pause;
    final boolean waitForServer;
    final WhenRefused whenRefused;

    private LiveOptions(Builder from, List<Server> servers) {
        this.servers = List.copyOf(servers);
        key = from.key;
        dataset = from.dataset;
        schemas = from.schemas;
        symbols = from.symbols;
        start = from.start == null ? Resume.NONE : from.start;
        snapshot = from.snapshot;
        slowReader = from.slowReader;
        tsOut = from.tsOut;
        tls = from.tls;
        waiting = from.waiting;
        connectTimeout = from.connectTimeout;
        answerTimeout = from.answerTimeout;
        silenceTimeout = from.silenceTimeout;
        attempts = from.attempts;
        pause = from.pause;
        waitForServer = from.waitForServer;
        whenRefused = from.whenRefused;
    }

    /** Starts from the defaults. Servers, key and schemas have none and must be set. */
    public static Builder builder() {
        return new Builder();
    }

    /** The server with this number; numbers wrap around. */
    Server server(int number) {
        return servers.get(number % servers.size());
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalArgumentException(what);
        }
    }

    /** Servers, dataset and schemas; never the key. */
    @Override
    public String toString() {
        return "LiveOptions(" + servers + ", " + dataset + ", " + schemas + ")";
    }

    /** Collects settings; {@link #build} validates them. */
    public static final class Builder {
        private String addresses;
        private String key;
        private String dataset = "TAPEWORKS.DEMO";
        private List<String> schemas = List.of();
        private List<String> symbols = List.of();
        private Long start;
        private boolean snapshot;
        private String slowReader;
        private boolean tsOut;
        private SSLSocketFactory tls;
        private Waiting waiting = Waiting.BLOCKING;
        private Duration connectTimeout = Duration.ofSeconds(2);
        private Duration answerTimeout = Duration.ofSeconds(10);
        private Duration silenceTimeout = Duration.ofSeconds(90);
        private int attempts = 10;
        private Duration pause = Duration.ofMillis(100);
        private boolean waitForServer;
        private WhenRefused whenRefused = WhenRefused.STOP;

        private Builder() {}

        /**
         * Sets the addresses of the servers, as {@code HOST:PORT}. Required.
         *
         * <p>Addresses separated by commas, such as {@code "10.0.0.1:13000,10.0.0.2:13000"}, are servers with the same records: the two
         * plants of a pair. The client connects to the first that serves, and moves on to the next when it loses the session.
         */
        public Builder servers(String addresses) {
            this.addresses = addresses;
            return this;
        }

        /** Sets the key: 32 characters that begin with {@code db-}. Required. The client proves that it has the key and never sends it. */
        public Builder key(String key) {
            this.key = key;
            return this;
        }

        /** Sets the dataset. Default: {@code TAPEWORKS.DEMO}, the dataset of {@code tapeworks demo}. */
        public Builder dataset(String dataset) {
            this.dataset = dataset;
            return this;
        }

        /** Sets the schemas to subscribe to, such as {@code mbo} or {@code cmbp-1}. Required. */
        public Builder schemas(String... schemas) {
            this.schemas = List.of(schemas);
            return this;
        }

        /** Limits the session to these symbols. Default: all. */
        public Builder symbols(String... symbols) {
            this.symbols = List.of(symbols);
            return this;
        }

        /** Replays records from this time before the live ones, in ns since the epoch, UTC. Default: live records only. */
        public Builder start(long start) {
            this.start = start;
            return this;
        }

        /** Requests the current state before the live records. Default: no snapshot. Not together with {@link #start}. */
        public Builder snapshot() {
            snapshot = true;
            return this;
        }

        /** Sets what the server does when this client reads too slowly: {@code warn}, {@code skip} or {@code conflate}. Default: the server decides. */
        public Builder slowReader(String behavior) {
            slowReader = behavior;
            return this;
        }

        /** Requests the time of sending in each record, {@code Record.tsOut}. Default: without. */
        public Builder tsOut() {
            tsOut = true;
            return this;
        }

        /** Connects over TLS and checks the server's name against its certificate. Default: no TLS. */
        public Builder tls(SSLSocketFactory tls) {
            this.tls = Objects.requireNonNull(tls);
            return this;
        }

        /** Sets how the client waits for bytes. Default: {@link Waiting#BLOCKING}. */
        public Builder waiting(Waiting waiting) {
            this.waiting = Objects.requireNonNull(waiting);
            return this;
        }

        /** Limits how long one server may take to accept the TCP connection. Default: 2 s. */
        public Builder connectTimeout(Duration timeout) {
            connectTimeout = timeout;
            return this;
        }

        /** Limits how long a server may take for each answer before the session begins. Default: 10 s; with several servers at most 5 s. */
        public Builder answerTimeout(Duration timeout) {
            answerTimeout = timeout;
            return this;
        }

        /** Limits how long a server may be silent during a session. Default: 90 s, three heartbeats. */
        public Builder silenceTimeout(Duration timeout) {
            silenceTimeout = timeout;
            return this;
        }

        /**
         * Sets how many attempts in a row to reconnect after a session was lost, and the pause before the first one. The pause doubles
         * with each attempt, up to 10 s. Default: 10 attempts, 100 ms. With 0 attempts the client never reconnects.
         */
        public Builder reconnects(int attempts, Duration pause) {
            this.attempts = attempts;
            this.pause = pause;
            return this;
        }

        /**
         * Retries the first connection too, with the attempts and pauses of {@link #reconnects}; {@code RecordHandler.onConnectFailed}
         * reports each failure immediately. Default: the client throws when its first attempt has failed at every server.
         */
        public Builder waitForServer() {
            waitForServer = true;
            return this;
        }

        /** Sets what to do when every server refuses to replay the records since the session was lost. Default: {@link WhenRefused#STOP}. */
        public Builder whenRefused(WhenRefused whenRefused) {
            this.whenRefused = Objects.requireNonNull(whenRefused);
            return this;
        }

        /** @throws IllegalArgumentException a required setting is missing, or a setting is invalid; the message names it in one line */
        public LiveOptions build() {
            check(addresses != null, "no server: set servers(\"HOST:PORT\")");
            List<Server> servers = new ArrayList<>();
            for (String address : addresses.split(",", -1)) {
                servers.add(Server.parse(address));
            }
            check(key != null, "no key: set key(...); tapeworks demo accepts LiveOptions.DEMO_KEY");
            check(key.length() == KEY_LENGTH && key.startsWith("db-"), "a key has 32 characters and begins with db-");
            check(!schemas.isEmpty(), "no schema: set schemas(...)");
            Map<Integer, String> types = new HashMap<>();
            for (String schema : schemas) {
                int type = Dbn.recordTypeOf(schema);
                check(type >= 0, "unknown schema '" + schema + "'");
                String other = types.put(type, schema);
                check(other == null, schema + " and " + other + " have records of the same type: use a session for each");
            }
            for (String text : symbols) {
                check(isSymbol(text), "'" + text + "' is not a symbol");
            }
            check(start == null || start >= 0, "start " + start + ": expected 0 or more");
            check(!snapshot || start == null, "a session begins with a snapshot or at a start, not both");
            check(dataset != null && isPlain(dataset), "'" + dataset + "' is not a dataset");
            check(slowReader == null || List.of("warn", "skip", "conflate").contains(slowReader),
                    "slow reader '" + slowReader + "': expected warn, skip or conflate");
            check(tls == null || waiting == Waiting.BLOCKING, "busy waiting is not available with TLS");
            checkPositive("connect timeout", connectTimeout);
            checkPositive("answer timeout", answerTimeout);
            checkPositive("silence timeout", silenceTimeout);
            check(attempts >= 0, "reconnects " + attempts + ": expected 0 or more");
            check(pause != null && !pause.isNegative(), "reconnect pause " + pause + ": expected 0 or more");
            return new LiveOptions(this, servers);
        }

        private static void checkPositive(String name, Duration timeout) {
            check(timeout != null && !timeout.isNegative() && !timeout.isZero(), name + " " + timeout + ": expected more than 0");
        }

        /** Whether a text cannot break out of its field in a line of the protocol. */
        private static boolean isPlain(String text) {
            return !text.isEmpty() && text.chars().allMatch(c -> c > ' ' && c < 0x7F && c != '|' && c != ',' && c != '=');
        }

        /** Like {@link #isPlain}, but a symbol may contain spaces, and an equals sign as the symbols of units do. */
        private static boolean isSymbol(String text) {
            return !text.isBlank() && text.equals(text.strip()) && text.chars().allMatch(c -> c >= ' ' && c < 0x7F && c != '|' && c != ',');
        }
    }
}
