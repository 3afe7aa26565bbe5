package io.tapeworks.client.live;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tapeworks.client.dbn.Dbn;
import io.tapeworks.client.dbn.DbnException;
import io.tapeworks.client.dbn.ErrorMessage;
import io.tapeworks.client.dbn.Mbo;
import io.tapeworks.client.dbn.RecordHandler;
import io.tapeworks.client.dbn.Records;
import io.tapeworks.client.dbn.SystemMessage;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
final class LiveClientTest {
    private static final String KEY = "db-0123456789012345678901234567Z";

    /** Options of a session with these servers. It does not reconnect. */
    static LiveOptions.Builder at(String addresses) {
        return LiveOptions.builder().servers(addresses).key(KEY).schemas("mbo").reconnects(0, Duration.ofMillis(1));
    }

    /** In place of a stream: the server refuses. */
    private static final byte[] REFUSED = {};

    /** A server that sends a stream to each connection, one after the other, and notes what was requested. */
    static class Server {
        final ServerSocket listener;
        final List<String> requests = Collections.synchronizedList(new ArrayList<>());

        Server(byte[]... streams) throws IOException {
            this(new ServerSocket(0, 10, InetAddress.getLoopbackAddress()), streams);
        }

        Server(ServerSocket listener, byte[]... streams) {
            this.listener = listener;
            Thread thread = new Thread(() -> {
                try (listener) {
                    for (byte[] stream : streams) {
                        try (Socket socket = listener.accept()) {
                            serve(socket, stream);
                        }
                    }
                } catch (IOException over) {
                    requests.add("failed: " + over.getMessage());
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private void serve(Socket socket, byte[] stream) throws IOException {
            var output = socket.getOutputStream();
            var input = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            output.write("lsg_version=test\ncram=abc\n".getBytes());
            String auth = input.readLine();
            requests.add(auth);
            if (stream == REFUSED) {
                output.write("success=0|error=no such dataset\n".getBytes());
                return;
            }
            if (!auth.startsWith("auth=" + LiveClient.answer("abc", KEY) + "-4567Z|")) {
                output.write("success=0|error=authentication failed\n".getBytes());
                return;
            }
            output.write("success=1|session_id=1\n".getBytes());
            for (String line = input.readLine(); !line.equals("start_session"); line = input.readLine()) {
                requests.add(line);
            }
            output.write(stream);
            served(socket);
        }

        /** The stream is sent; then the connection is closed. */
        void served(Socket socket) throws IOException {}

        String address() {
            return "127.0.0.1:" + listener.getLocalPort();
        }

        LiveOptions.Builder options(String... schemas) {
            return at(address()).schemas(schemas);
        }
    }

    /** A server of records of one day: it replays those of the requested start or later, and breaks each connection but the last amid them. */
    private static final class Replaying implements AutoCloseable {
        final ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
        private final List<long[]> records;
        private final java.util.Random random;
        private int cuts;

        Replaying(List<long[]> records, java.util.Random random, int cuts) throws IOException {
            this.records = records;
            this.random = random;
            this.cuts = cuts;
            Thread thread = new Thread(() -> {
                while (true) {
                    try (Socket socket = listener.accept()) {
                        serve(socket);
                    } catch (IOException over) {
                        if (listener.isClosed()) {
                            return;
                        }
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private void serve(Socket socket) throws IOException {
            var output = socket.getOutputStream();
            var input = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            output.write("lsg_version=test\ncram=abc\n".getBytes());
            input.readLine();
            output.write("success=1|session_id=1\n".getBytes());
            String start = LiveClient.value(input.readLine(), "start");
            input.readLine();
            long from = start == null ? 0 : Long.parseLong(start);
            List<byte[]> parts = new ArrayList<>(List.of(Records.metadata(3)));
            records.stream().filter(record -> record[1] >= from).forEach(record -> parts.add(Records.mbo(record[0], record[1])));
            byte[] stream = Records.joined(parts.toArray(new byte[0][]));
            cuts -= 1;
            output.write(stream, 0, cuts < 0 ? stream.length : random.nextInt(stream.length));
        }

        String address() {
            return "127.0.0.1:" + listener.getLocalPort();
        }

        @Override
        public void close() throws IOException {
            listener.close();
        }
    }

    static class Orders implements RecordHandler {
        final List<Long> seen = new ArrayList<>();
        final List<Long> reconnects = new ArrayList<>();
        Runnable heard = () -> {};
        long messages;
        final List<Long> missing = new ArrayList<>();

        @Override
        public void onSystemMessage(SystemMessage message, long sequence, boolean endOfBatch) {
            messages += 1;
        }

        @Override
        public void onErrorMessage(ErrorMessage message, long sequence, boolean endOfBatch) {
            messages += 1;
        }

        @Override
        public void onMissing(int recordType, long from, long to) {
            missing.add(from);
            missing.add(to);
        }

        @Override
        public void onReconnect(long count) {
            reconnects.add(count);
            heard.run();
        }

        @Override
        public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
            assertEquals(seen.size() + messages, sequence);
            seen.add(mbo.orderId());
        }
    }

    @Test
    void eachRecordComesOnceThoughTheConnectionBreaks() throws IOException {
        comesOnce(LiveOptions.Waiting.BLOCKING);
    }

    @Test
    void aClientThatWaitsBusyHasEachRecordOnceToo() throws IOException {
        comesOnce(LiveOptions.Waiting.BUSY);
    }

    private static void comesOnce(LiveOptions.Waiting waiting) throws IOException {
        byte[] begin = Records.metadata(3);
        byte[] cut = Records.mbo(5, 30);
        Server server = new Server(
                Records.joined(begin, Records.system("Finished mbo snapshot"), Records.mbo(1, 10), Records.mbo(2, 20), Records.mbo(3, 20),
                        java.util.Arrays.copyOf(cut, 20)),
                // The second connection brings nothing, and the third begins with what came already.
                begin,
                Records.joined(begin, Records.mbo(2, 20), Records.mbo(3, 20), Records.mbo(4, 20), Records.mbo(5, 30)));
        Orders orders = new Orders();
        LiveOptions.Builder options = server.options("mbo").reconnects(2, Duration.ofMillis(1)).snapshot().waiting(waiting);
        try (LiveClient client = new LiveClient(options.build())) {
            assertThrows(LiveException.class, () -> client.run(orders));
            assertTrue(client.reconnects() >= 2);
        }
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L), orders.seen);
        String subscription = "schema=mbo|stype_in=raw_symbol|symbols=ALL_SYMBOLS|snapshot=";
        assertEquals(subscription + "1|is_last=1", server.requests.get(1));
        assertEquals(subscription + "0|is_last=1|start=11", server.requests.get(3));
        assertEquals(subscription + "0|is_last=1|start=11", server.requests.get(5));
    }

    @Test
    void aClientOfAPairGoesOnAtTheOtherServerAndComesBack() throws IOException {
        byte[] begin = Records.metadata(3);
        Server first = new Server(
                Records.joined(begin, Records.mbo(1, 10), Records.mbo(2, 20)),
                Records.joined(begin, Records.mbo(2, 20), Records.mbo(3, 20), Records.mbo(4, 30), Records.mbo(5, 40)));
        Server second = new Server(Records.joined(begin, Records.mbo(2, 20), Records.mbo(3, 20), Records.mbo(4, 30)));
        LiveOptions.Builder options = first.options("mbo")
                .reconnects(2, Duration.ofMillis(1))
                .servers(first.address() + "," + second.address());
        List<Integer> servers = new ArrayList<>();
        Orders orders = new Orders();
        try (LiveClient client = new LiveClient(options.build())) {
            orders.heard = () -> servers.add(client.server().port());
            // Both have sent what they have.
            assertThrows(LiveException.class, () -> client.run(orders));
        }
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L), orders.seen);
        // The handler hears of each session that goes on, and of no attempt that fails.
        assertEquals(List.of(1L, 2L), orders.reconnects);
        assertEquals(List.of(second.listener.getLocalPort(), first.listener.getLocalPort()), servers);
        assertEquals(1, second.requests.stream().filter(line -> line.startsWith("auth=")).count());
        assertTrue(second.requests.get(1).endsWith("|start=11"), second.requests.toString());
    }

    /** A port where nothing listens. */
    private static int away() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            return listener.getLocalPort();
        }
    }

    private static LiveOptions.Builder both(int first, int second) {
        return at("127.0.0.1:" + first + ", 127.0.0.1:" + second);
    }

    @Test
    void theFirstServerThatServesIsTakenInTheSameAttempt() throws IOException {
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(1, 10));
        Server refuses = new Server(REFUSED);
        for (int first : new int[] {away(), refuses.listener.getLocalPort()}) {
            Server serves = new Server(stream);
            Orders orders = new Orders();
            try (LiveClient client = new LiveClient(both(first, serves.listener.getLocalPort()).build())) {
                LiveException ended = assertThrows(LiveException.class, () -> client.run(orders));
                assertEquals(LiveException.Reason.ENDED, ended.reason());
                assertEquals("127.0.0.1:" + serves.listener.getLocalPort() + ": the server has ended the session", ended.getMessage());
                assertEquals(serves.listener.getLocalPort(), client.server().port());
                assertEquals(0, client.reconnects());
            }
            assertEquals(List.of(1L), orders.seen);
            assertEquals(List.of(), orders.reconnects);
        }
    }

    @Test
    void ofARefusalAndAServerThatIsAwayTheRefusalIsSaidAndBothAreTriedAgain() throws IOException {
        Server refuses = new Server(REFUSED, REFUSED, REFUSED);
        LiveOptions.Builder options =
                both(away(), refuses.listener.getLocalPort()).waitForServer().reconnects(2, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(options.build())) {
            LiveException failed = assertThrows(LiveException.class, () -> client.run(new Orders()));
            assertTrue(failed.getMessage().contains(": no such dataset; 127.0.0.1:"), failed.getMessage());
            assertEquals(LiveException.Reason.BROKEN, ((LiveException) failed.getSuppressed()[0]).reason());
            assertEquals(2, client.reconnects());
        }
        // Where all refuse, another attempt is no use.
        Server one = new Server(REFUSED);
        Server other = new Server(REFUSED);
        LiveOptions.Builder both = both(one.listener.getLocalPort(), other.listener.getLocalPort()).reconnects(9, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(both.build())) {
            LiveException refused = assertThrows(LiveException.class, () -> client.run(new Orders()));
            assertEquals(LiveException.Reason.REFUSED, refused.reason());
            assertTrue(refused.getMessage().startsWith("127.0.0.1:" + one.listener.getLocalPort()), refused.getMessage());
            assertEquals(0, client.reconnects());
        }
        assertEquals(List.of(1, 1), List.of(one.requests.size(), other.requests.size()));
    }

    @Test
    void aServerWhoseBytesAreNoDbnIsLeftForTheOther() throws IOException {
        byte[] begin = Records.metadata(3);
        Server broken = new Server(Records.joined(begin, Records.mbo(1, 10), new byte[4]));
        Server whole = new Server(Records.joined(begin, Records.mbo(1, 10), Records.mbo(2, 20)));
        Orders orders = new Orders();
        LiveOptions.Builder options = both(broken.listener.getLocalPort(), whole.listener.getLocalPort()).reconnects(1, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(options.build())) {
            assertThrows(LiveException.class, () -> client.run(orders));
        }
        assertEquals(List.of(1L, 2L), orders.seen);
    }

    @Test
    void aServerThatDoesNotAnswerCostsALostSessionTwoSecondsAndNoMore() throws IOException {
        byte[] begin = Records.metadata(3);
        Server serves = new Server(Records.joined(begin, Records.mbo(1, 10)), Records.joined(begin, Records.mbo(1, 10), Records.mbo(2, 20)));
        // It takes connections and says nothing. With the patience of the options the test would run into its time limit.
        try (ServerSocket silent = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Orders orders = new Orders();
            LiveOptions.Builder options = both(serves.listener.getLocalPort(), silent.getLocalPort())
                    .reconnects(1, Duration.ofMillis(1)).answerTimeout(Duration.ofHours(1)).silenceTimeout(Duration.ofHours(1));
            try (LiveClient client = new LiveClient(options.build())) {
                assertThrows(LiveException.class, () -> client.run(orders));
            }
            assertEquals(List.of(1L, 2L), orders.seen);
        }
    }

    @Test
    void aClientOfAPairHasEachRecordOnceWhereverItsServersBreak() throws IOException {
        long seed = System.nanoTime();
        java.util.Random random = new java.util.Random(seed);
        for (int round = 0; round < 20; round++) {
            List<long[]> records = new ArrayList<>();
            List<Long> all = new ArrayList<>();
            long time = 1_000_000_000_000L;
            for (long number = 0; number < 3_000; number++) {
                time += random.nextInt(3) * 10_000_000L;
                // What waited behind a gap has an earlier time than what filled it; none is of before the first.
                long back = number > 100 && random.nextInt(4) == 0 ? random.nextInt(100) * 5_000_000L : 0;
                records.add(new long[] {number, time - back});
                all.add(number);
            }
            Orders orders = new Orders();
            try (Replaying first = new Replaying(records, random, random.nextInt(4)); Replaying second = new Replaying(records, random, random.nextInt(4))) {
                LiveOptions.Builder options = at(first.address() + "," + second.address()).reconnects(20, Duration.ofMillis(1));
                try (LiveClient client = new LiveClient(options.build())) {
                    while (orders.seen.size() < all.size()) {
                        client.poll(orders);
                    }
                }
            }
            assertEquals(all, orders.seen, "seed " + seed + ", round " + round);
        }
    }

    @Test
    void addressesHaveHostsAndPorts() {
        LiveOptions options = at("127.0.0.1:13000, plant-b:13001,[::1]:13002").build();
        assertEquals(List.of("127.0.0.1:13000", "plant-b:13001", "[::1]:13002"),
                List.of(options.server(0).toString(), options.server(1).toString(), options.server(2).toString()));
        assertEquals("::1", options.server(2).host());
        assertEquals(options.server(0), options.server(3));
        assertTrue(options.toString().contains("127.0.0.1:13000, plant-b:13001, [::1]:13002"), options.toString());
        for (String wrong : new String[] {"", "nowhere", "127.0.0.1:", ":13000", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:13000,"}) {
            assertThrows(IllegalArgumentException.class, () -> at(wrong).build(), wrong);
        }
    }

    @Test
    void aRefusedKeyIsNotTriedAgain() throws IOException {
        Server server = new Server(Records.metadata(3));
        LiveOptions.Builder options = server.options("mbo").key(LiveOptions.DEMO_KEY).reconnects(5, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(options.build())) {
            LiveException refused = assertThrows(LiveException.class, () -> client.run(new Orders()));
            assertEquals(LiveException.Reason.REFUSED, refused.reason());
            assertTrue(refused.getMessage().endsWith(": authentication failed"), refused.getMessage());
            assertEquals(0, client.reconnects());
        }
        assertFalse(options.build().toString().contains("db-"));
    }

    @Test
    void bytesThatAreNoDbnEndTheSessionWithTheirOffset() throws IOException {
        Server server = new Server(Records.joined(Records.metadata(3), Records.mbo(1, 1), new byte[4]));
        Orders orders = new Orders();
        try (LiveClient client = new LiveClient(server.options("mbo").build())) {
            DbnException wrong = assertThrows(DbnException.class, () -> client.run(orders));
            assertEquals("byte 164 of the stream: a record of 0 bytes", wrong.getMessage());
        }
        assertEquals(List.of(1L), orders.seen);
    }

    @Test
    void aServerThatFallsSilentInASessionIsGivenUp() throws IOException {
        for (LiveOptions.Waiting waiting : LiveOptions.Waiting.values()) {
            // It sends the beginning and keeps the connection open.
            Server server = new Server(Records.joined(Records.metadata(3), Records.mbo(1, 1))) {
                @Override
                void served(Socket socket) {
                    try {
                        Thread.sleep(20_000);
                    } catch (InterruptedException over) {
                        // It ends.
                    }
                }
            };
            LiveOptions.Builder options = server.options("mbo").waiting(waiting).answerTimeout(Duration.ofSeconds(5)).silenceTimeout(Duration.ofMillis(50));
            Orders orders = new Orders();
            try (LiveClient client = new LiveClient(options.build())) {
                LiveException silent = assertThrows(LiveException.class, () -> client.run(orders));
                assertTrue(silent.getMessage().contains("silent"), silent.getMessage());
            }
            assertEquals(List.of(1L), orders.seen);
        }
    }

    @Test
    void aSilentServerIsGivenUp() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            LiveOptions.Builder options = at("127.0.0.1:" + listener.getLocalPort())
                    .answerTimeout(Duration.ofMillis(50)).silenceTimeout(Duration.ofMillis(50)).reconnects(1, Duration.ofMillis(1));
            try (LiveClient client = new LiveClient(options.build())) {
                assertThrows(LiveException.class, () -> client.run(new Orders()));
            }
        }
    }

    @Test
    void anotherThreadEndsASession() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            LiveClient client = new LiveClient(at("127.0.0.1:" + listener.getLocalPort()).build());
            Thread closer = new Thread(() -> {
                try {
                    listener.accept();
                    Thread.sleep(50);
                } catch (IOException | InterruptedException over) {
                    // The test fails by its time limit.
                }
                client.close();
            });
            closer.start();
            client.run(new Orders());
            closer.join();
        }
    }

    private static void refuses(String message, LiveOptions.Builder options) {
        assertEquals(message, assertThrows(IllegalArgumentException.class, options::build).getMessage());
    }

    @Test
    void aKeyIsRequired() {
        LiveOptions.Builder options = LiveOptions.builder().servers("127.0.0.1:1").schemas("mbo");
        refuses("no key: set key(...); tapeworks demo accepts LiveOptions.DEMO_KEY", options);
        refuses("a key has 32 characters and begins with db-", options.key("short"));
        assertEquals(KEY, options.key(KEY).build().key);
        assertEquals(0, LiveOptions.class.getConstructors().length, "options are made by the builder alone");
    }

    @Test
    void optionsThatCannotWorkAreRefused() {
        refuses("no server: set servers(\"HOST:PORT\")", LiveOptions.builder().key(KEY).schemas("mbo"));
        refuses("no schema: set schemas(...)", LiveOptions.builder().servers("127.0.0.1:1").key(KEY));
        for (String[] schemas : new String[][] {{}, {"nothing"}, {"mbp-1", "tbbo"}, {"mbo", "mbo"}}) {
            assertThrows(IllegalArgumentException.class, at("127.0.0.1:1").schemas(schemas)::build);
        }
        refuses("'A|start=1' is not a symbol", at("127.0.0.1:1").symbols("A|start=1"));
        assertThrows(IllegalArgumentException.class, at("127.0.0.1:1").symbols("A\nstart_session")::build);
        assertEquals(List.of("ABC=", "BRK A"), at("127.0.0.1:1").symbols("ABC=", "BRK A").build().symbols);
        refuses("a session begins with a snapshot or at a start, not both", at("127.0.0.1:1").snapshot().start(5));
        refuses("start -1: expected 0 or more", at("127.0.0.1:1").start(-1));
        refuses("slow reader 'drop': expected warn, skip or conflate", at("127.0.0.1:1").slowReader("drop"));
        refuses("reconnects -1: expected 0 or more", at("127.0.0.1:1").reconnects(-1, Duration.ZERO));
        refuses("connect timeout PT0S: expected more than 0", at("127.0.0.1:1").connectTimeout(Duration.ZERO));
        refuses("answer timeout null: expected more than 0", at("127.0.0.1:1").answerTimeout(null));
    }

    /** With the default attempts and pauses, a client that retried would take 44.8 s. */
    @Test
    @Timeout(5)
    void aFirstConnectionThatFailsIsReportedImmediately() throws IOException {
        int one = away();
        int other = away();
        LiveOptions.Builder defaults = LiveOptions.builder().key(KEY).schemas("mbo");
        String[][] cases = {
            {"127.0.0.1:" + one, "127.0.0.1:" + one + ": Connection refused"},
            {"nowhere.invalid:13000", "nowhere.invalid:13000: unknown host"},
            {
                "127.0.0.1:" + one + ",127.0.0.1:" + other,
                "127.0.0.1:" + one + ": Connection refused; 127.0.0.1:" + other + ": Connection refused"
            },
        };
        for (String[] addressAndMessage : cases) {
            try (LiveClient client = new LiveClient(defaults.servers(addressAndMessage[0]).build())) {
                LiveException failed = assertThrows(LiveException.class, () -> client.run(new Orders()));
                assertEquals(addressAndMessage[1], failed.getMessage());
                assertEquals(LiveException.Reason.BROKEN, failed.reason());
                assertEquals(0, client.reconnects());
            }
        }
    }

    @Test
    @Timeout(5)
    void aServerThatDoesNotAcceptIsReportedAfterTheConnectTimeout() throws IOException {
        // Linux completes one connection more than the backlog; further ones wait.
        try (ServerSocket full = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket first = new Socket(full.getInetAddress(), full.getLocalPort());
                Socket second = new Socket(full.getInetAddress(), full.getLocalPort())) {
            LiveOptions options = at("127.0.0.1:" + full.getLocalPort()).connectTimeout(Duration.ofMillis(100)).build();
            try (LiveClient client = new LiveClient(options)) {
                LiveException failed = assertThrows(LiveException.class, () -> client.run(new Orders()));
                assertEquals("127.0.0.1:" + full.getLocalPort() + ": Connect timed out", failed.getMessage());
            }
            assertTrue(first.isConnected() && second.isConnected());
        }
    }

    @Test
    void aLostSessionIsRetriedThoughNoServerCanBeReached() throws IOException {
        Server server = new Server(Records.joined(Records.metadata(3), Records.mbo(1, 10)));
        Orders orders = new Orders() {
            @Override
            public void onConnectFailed(IOException failure) {
                throw new AssertionError("the session began", failure);
            }
        };
        try (LiveClient client = new LiveClient(server.options("mbo").reconnects(3, Duration.ofMillis(1)).build())) {
            LiveException failed = assertThrows(LiveException.class, () -> client.run(orders));
            assertEquals(server.address() + ": Connection refused", failed.getMessage());
            assertEquals(3, client.reconnects());
        }
        assertEquals(List.of(1L), orders.seen);
    }

    @Test
    @Timeout(10)
    void aServerThatDoesNotAnswerIsLeftForTheOtherInTheFirstAttempt() throws IOException {
        Server serves = new Server(Records.joined(Records.metadata(3), Records.mbo(1, 10)));
        try (ServerSocket silent = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Orders orders = new Orders();
            LiveOptions options = both(silent.getLocalPort(), serves.listener.getLocalPort()).answerTimeout(Duration.ofHours(1)).build();
            try (LiveClient client = new LiveClient(options)) {
                assertThrows(LiveException.class, () -> client.run(orders));
            }
            assertEquals(List.of(1L), orders.seen);
        }
    }

    @Test
    void aClientThatWaitsForItsServerReportsEachFailureAndConnects() throws IOException {
        int port = away();
        List<String> failures = new ArrayList<>();
        List<Server> started = new ArrayList<>();
        Orders orders = new Orders() {
            @Override
            public void onConnectFailed(IOException failure) {
                failures.add(failure.getMessage());
                if (failures.size() == 2) {
                    try {
                        ServerSocket listener = new ServerSocket(port, 10, InetAddress.getLoopbackAddress());
                        started.add(new Server(listener, Records.joined(Records.metadata(3), Records.mbo(1, 10))));
                    } catch (IOException taken) {
                        throw new java.io.UncheckedIOException(taken);
                    }
                }
            }
        };
        LiveOptions options = at("127.0.0.1:" + port).waitForServer().reconnects(3, Duration.ofMillis(1)).build();
        try (LiveClient client = new LiveClient(options)) {
            assertThrows(LiveException.class, () -> client.run(orders));
        }
        assertEquals(List.of(1L), orders.seen);
        String refused = "127.0.0.1:" + port + ": Connection refused";
        assertEquals(List.of(refused, refused), failures, "later failures are those of a lost session");
        assertEquals(List.of(), orders.reconnects);
    }

    /** Runs a client in its own thread, interrupts it, and returns what it threw and whether its interrupt flag was set. */
    static String interrupted(LiveOptions options, Orders orders, Runnable untilReady) throws InterruptedException {
        List<String> ended = Collections.synchronizedList(new ArrayList<>());
        LiveClient client = new LiveClient(options);
        Thread thread = new Thread(() -> {
            try {
                client.run(orders);
                ended.add("returned, interrupted: " + Thread.currentThread().isInterrupted());
            } catch (IOException | RuntimeException thrown) {
                ended.add(thrown.toString());
            }
        });
        thread.start();
        untilReady.run();
        thread.interrupt();
        thread.join(2_000);
        client.close();
        return ended.isEmpty() ? "still runs" : ended.get(0);
    }

    @Test
    void anInterruptEndsARunAndClosesItsConnection() throws Exception {
        for (LiveOptions.Waiting waiting : LiveOptions.Waiting.values()) {
            CountDownLatch received = new CountDownLatch(1);
            CountDownLatch closed = new CountDownLatch(1);
            Server server = new Server(Records.joined(Records.metadata(3), Records.mbo(1, 1))) {
                @Override
                void served(Socket socket) throws IOException {
                    if (socket.getInputStream().read() < 0) {
                        closed.countDown();
                    }
                }
            };
            Orders orders = new Orders() {
                @Override
                public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                    received.countDown();
                }
            };
            // The client would reconnect if it mistook the interrupt for a lost session.
            LiveOptions options = server.options("mbo").waiting(waiting).reconnects(10, Duration.ofMillis(1)).build();
            assertEquals("returned, interrupted: true", interrupted(options, orders, () -> await(received)));
            assertTrue(closed.await(5, TimeUnit.SECONDS), "the connection is closed");
            assertEquals(1, server.requests.stream().filter(line -> line.startsWith("auth=")).count());
        }
    }

    @Test
    void anInterruptedSessionResumesInALaterRun() throws IOException {
        byte[] begin = Records.metadata(3);
        Server server = new Server(
                Records.joined(begin, Records.mbo(1, 10)), Records.joined(begin, Records.mbo(1, 10), Records.mbo(2, 20)));
        Orders orders = new Orders() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                super.onMbo(mbo, sequence, endOfBatch);
                Thread.currentThread().interrupt();
            }
        };
        try (LiveClient client = new LiveClient(server.options("mbo").build())) {
            for (List<Long> seen : List.of(List.of(1L), List.of(1L, 2L))) {
                client.run(orders);
                assertTrue(Thread.interrupted());
                assertEquals(seen, orders.seen);
            }
        }
        assertEquals(List.of(0L), orders.reconnects);
    }

    @Test
    void anInterruptEndsAPauseBeforeReconnecting() throws Exception {
        CountDownLatch failed = new CountDownLatch(1);
        Orders orders = new Orders() {
            @Override
            public void onConnectFailed(IOException failure) {
                failed.countDown();
            }
        };
        LiveOptions options = at("127.0.0.1:" + away()).waitForServer().reconnects(1, Duration.ofSeconds(10)).build();
        assertEquals("returned, interrupted: true", interrupted(options, orders, () -> await(failed)));
    }

    static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(10, TimeUnit.SECONDS));
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
    }

    @Test
    void aSessionOfSeveralSchemasBeginsAnewWhereEachOfThemIs() {
        Resume resume = new Resume();
        assertFalse(resume.begin(List.of("mbo")));
        for (long time : new long[] {100, 105, 106}) {
            assertTrue(resume.takes(Dbn.MBO, time * 1_000_000_000L, false));
        }
        assertTrue(resume.takes(Dbn.OHLCV_1S, 104_000_000_000L, false));
        assertTrue(resume.begin(List.of("mbo")));
        assertEquals(100_000_000_001L, resume.start("mbo"));
        assertEquals(104_000_000_000L, resume.start("ohlcv-1s"));
        // Of a schema without a record, the interval before the first record of others counts.
        assertEquals(99_000_000_000L, resume.start("bbo-1s"));
        assertFalse(resume.takes(Dbn.OHLCV_1S, 103_000_000_000L, false));
        assertFalse(resume.takes(Dbn.OHLCV_1S, 104_000_000_000L, false));
        assertTrue(resume.takes(Dbn.OHLCV_1S, 105_000_000_000L, false));
        assertFalse(resume.takes(Dbn.MBO, 105_000_000_000L, false));
        assertFalse(resume.takes(Dbn.MBO, 106_000_000_000L, false));
        assertTrue(resume.takes(Dbn.MBO, 106_000_000_000L, false));
    }

    /** What a server replays of records, in their order: those of a time or later. */
    private static List<Long> resumed(List<long[]> records, int broke) {
        Resume resume = new Resume();
        List<Long> seen = new ArrayList<>();
        for (long[] record : records.subList(0, broke)) {
            assertTrue(resume.takes(Dbn.MBO, record[1], record[2] != 0));
            seen.add(record[0]);
        }
        assertTrue(resume.begin(List.of("mbo")));
        resume.connected(false);
        long start = resume.start("mbo");
        for (long[] record : records) {
            if (record[1] >= start && resume.takes(Dbn.MBO, record[1], record[2] != 0)) {
                seen.add(record[0]);
            }
        }
        return seen;
    }

    @Test
    void whatStepsBackInTimeOrIsOfAVenuesSnapshotComesOnceToo() {
        java.util.Random random = new java.util.Random(3);
        for (int round = 0; round < 200; round++) {
            List<long[]> records = new ArrayList<>();
            List<Long> all = new ArrayList<>();
            long time = 1_000_000_000_000L;
            // Long enough for the ring to forget, in some rounds.
            int length = round % 20 == 0 ? Resume.KEPT * 2 : 300;
            for (long number = 0; number < length; number++) {
                time += random.nextInt(3) * 1_000;
                // What waited behind a gap has an earlier time than what filled it; none is of before the first.
                long back = number > 100 && random.nextInt(4) == 0 ? random.nextInt(100) * 500L : 0;
                records.add(new long[] {number, time - back, random.nextInt(3) / 2});
                all.add(number);
            }
            int broke = length - 1 - random.nextInt(100);
            assertEquals(all, resumed(records, broke), "round " + round);
        }
    }

    @Test
    void aRecordLaterThanTheLastIsNeverDropped() {
        Resume resume = new Resume();
        for (long time = 100; time < 110; time++) {
            assertTrue(resume.takes(Dbn.MBO, time, false));
        }
        assertTrue(resume.begin(List.of("mbo")));
        resume.connected(false);
        assertFalse(resume.takes(Dbn.MBO, 109, false));
        assertTrue(resume.takes(Dbn.MBO, 110, false));
        assertEquals(Resume.NONE, resume.takeMissingFrom());
        assertTrue(resume.begin(List.of("mbo")));
        resume.connected(false);
        assertTrue(resume.takes(Dbn.MBO, 150, false));
        assertEquals(110, resume.takeMissingFrom());
        assertTrue(resume.takes(Dbn.MBO, 151, false));
        assertEquals(Resume.NONE, resume.takeMissingFrom());
    }

    @Test
    void aRequestedSnapshotIsNoPartOfWhatIsReplayed() {
        Resume resume = new Resume();
        resume.connected(true);
        for (long time : new long[] {5, 6, 7}) {
            assertTrue(resume.takes(Dbn.MBO, time, true));
        }
        resume.finishSnapshot(Dbn.MBO);
        assertTrue(resume.takes(Dbn.MBO, 10, false));
        assertTrue(resume.takes(Dbn.MBO, 11, true));
        assertTrue(resume.begin(List.of("mbo")));
        resume.connected(false);
        assertEquals(11, resume.start("mbo"));
        assertFalse(resume.takes(Dbn.MBO, 11, true));
        assertTrue(resume.takes(Dbn.MBO, 12, true));
    }

    /** The replay has records of instruments whose part of the snapshot came later than these records. */
    @Test
    void recordsBeforeTheEndOfASnapshotInPartsAreNotCounted() {
        Resume resume = new Resume();
        resume.connected(true);
        assertTrue(resume.takes(Dbn.MBO, 100, true));
        assertTrue(resume.takes(Dbn.MBO, 101, false));
        assertTrue(resume.takes(Dbn.MBO, 102, true));
        resume.finishSnapshot(Dbn.MBO);
        assertTrue(resume.begin(List.of("mbo")));
        assertEquals(103, resume.start("mbo"), "the snapshot has the rest");
        for (long time = 103; time < 106; time++) {
            assertTrue(resume.takes(Dbn.MBO, time, false));
        }
        assertTrue(resume.begin(List.of("mbo")));
        resume.connected(false);
        assertEquals(104, resume.start("mbo"));
        assertFalse(resume.takes(Dbn.MBO, 104, false));
        assertFalse(resume.takes(Dbn.MBO, 105, false));
        assertTrue(resume.takes(Dbn.MBO, 105, false));
    }

    /** The first server's history does not reach back: it refuses the replay, and gives the present. */
    @Test
    void aRefusedReplayStopsOrContinuesWithTheHoleReported() throws IOException {
        byte[] begin = Records.metadata(3);
        byte[] refused = Records.joined(begin, Records.error("the replay is no longer kept", 8));
        for (LiveOptions.WhenRefused whenRefused : LiveOptions.WhenRefused.values()) {
            Server server = new Server(
                    Records.joined(begin, Records.mbo(1, 10), Records.mbo(2, 20)),
                    refused,
                    Records.joined(begin, Records.mbo(7, 70), Records.mbo(8, 80)));
            Orders orders = new Orders();
            LiveOptions.Builder options = server.options("mbo").reconnects(2, Duration.ofMillis(1)).whenRefused(whenRefused);
            try (LiveClient client = new LiveClient(options.build())) {
                LiveException failure = assertThrows(LiveException.class, () -> client.run(orders));
                boolean stops = whenRefused == LiveOptions.WhenRefused.STOP;
                assertEquals(stops, failure.getMessage().contains("the replay is no longer kept"));
                assertEquals(stops ? List.of(1L, 2L) : List.of(1L, 2L, 7L, 8L), orders.seen);
                assertEquals(stops ? List.of() : List.of(20L, 70L), orders.missing);
            }
        }
    }

    @Test
    void aSessionLostDuringASnapshotRequestsItAgainAndReportsAHole() {
        Resume resume = new Resume();
        resume.connected(true);
        assertTrue(resume.takes(Dbn.MBO, 100, true));
        assertTrue(resume.takes(Dbn.MBO, 101, false));
        assertTrue(resume.takes(Dbn.MBO, 102, true));
        assertFalse(resume.begin(List.of("mbo")));
        resume.connected(true);
        assertTrue(resume.takes(Dbn.MBO, 110, true));
        resume.finishSnapshot(Dbn.MBO);
        assertEquals(Resume.NONE, resume.takeMissingFrom());
        assertTrue(resume.takes(Dbn.MBO, 111, false));
        assertEquals(110, resume.takeMissingFrom());
        // A quiet schema resumes behind its snapshot.
        Resume quiet = new Resume();
        quiet.connected(true);
        assertTrue(quiet.takes(Dbn.MBO, 110, true));
        quiet.finishSnapshot(Dbn.MBO);
        assertTrue(quiet.begin(List.of("mbo")));
        assertEquals(111, quiet.start("mbo"));
    }
}
