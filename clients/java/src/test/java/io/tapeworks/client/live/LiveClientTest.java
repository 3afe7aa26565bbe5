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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
final class LiveClientTest {
    private static final String KEY = "db-0123456789012345678901234567Z";

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
            served();
        }

        /** The stream is sent; then the connection is closed. */
        void served() {}

        LiveOptions options(String... schemas) {
            return LiveOptions.of("127.0.0.1", listener.getLocalPort(), schemas).withKey(KEY).withReconnects(0, Duration.ofMillis(1));
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

    static final class Orders implements RecordHandler {
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
        LiveOptions options = server.options("mbo").withReconnects(2, Duration.ofMillis(1)).withSnapshot().withWaiting(waiting);
        try (LiveClient client = new LiveClient(options)) {
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
        LiveOptions options = first.options("mbo")
                .withReconnects(2, Duration.ofMillis(1))
                .withOtherServer("127.0.0.1", second.listener.getLocalPort());
        List<Integer> servers = new ArrayList<>();
        Orders orders = new Orders();
        try (LiveClient client = new LiveClient(options)) {
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
        assertThrows(IllegalArgumentException.class, () -> options.withOtherServer("127.0.0.1", 0));
    }

    /** A port where nothing listens. */
    private static int away() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            return listener.getLocalPort();
        }
    }

    private static LiveOptions both(int first, int second) {
        return LiveOptions.of("127.0.0.1:" + first + ", 127.0.0.1:" + second, "mbo").withKey(KEY);
    }

    @Test
    void theFirstServerThatServesIsTakenInTheSameAttempt() throws IOException {
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(1, 10));
        Server refuses = new Server(REFUSED);
        for (int first : new int[] {away(), refuses.listener.getLocalPort()}) {
            Server serves = new Server(stream);
            Orders orders = new Orders();
            try (LiveClient client = new LiveClient(both(first, serves.listener.getLocalPort()).withReconnects(0, Duration.ofMillis(1)))) {
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
        LiveOptions options = both(away(), refuses.listener.getLocalPort()).withReconnects(2, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(options)) {
            LiveException failed = assertThrows(LiveException.class, () -> client.run(new Orders()));
            assertTrue(failed.getMessage().endsWith(": no such dataset"), failed.getMessage());
            assertEquals(LiveException.Reason.BROKEN, ((LiveException) failed.getSuppressed()[0]).reason());
            assertEquals(2, client.reconnects());
        }
        // Where all refuse, another attempt is no use.
        Server one = new Server(REFUSED);
        Server other = new Server(REFUSED);
        LiveOptions both = both(one.listener.getLocalPort(), other.listener.getLocalPort()).withReconnects(9, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(both)) {
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
        LiveOptions options = both(broken.listener.getLocalPort(), whole.listener.getLocalPort()).withReconnects(1, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(options)) {
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
            LiveOptions options = both(serves.listener.getLocalPort(), silent.getLocalPort())
                    .withReconnects(1, Duration.ofMillis(1)).withPatience(Duration.ofHours(1), Duration.ofHours(1));
            try (LiveClient client = new LiveClient(options)) {
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
                LiveOptions options = LiveOptions.of(first.address() + "," + second.address(), "mbo").withReconnects(20, Duration.ofMillis(1));
                try (LiveClient client = new LiveClient(options)) {
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
        LiveOptions options = LiveOptions.of("127.0.0.1:13000, plant-b:13001,[::1]:13002", "mbo");
        assertEquals(List.of("127.0.0.1:13000", "plant-b:13001", "[::1]:13002"),
                List.of(options.server(0).toString(), options.server(1).toString(), options.server(2).toString()));
        assertEquals("::1", options.server(2).host());
        assertEquals(options.server(0), options.server(3));
        assertTrue(options.toString().contains("127.0.0.1:13000,plant-b:13001,[::1]:13002"), options.toString());
        for (String wrong : new String[] {"", "nowhere", "127.0.0.1:", ":13000", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:13000,"}) {
            assertThrows(IllegalArgumentException.class, () -> LiveOptions.of(wrong, "mbo"), wrong);
        }
    }

    @Test
    void aRefusedKeyIsNotTriedAgain() throws IOException {
        Server server = new Server(Records.metadata(3));
        LiveOptions options = server.options("mbo").withKey(LiveOptions.DEMO_KEY).withReconnects(5, Duration.ofMillis(1));
        try (LiveClient client = new LiveClient(options)) {
            LiveException refused = assertThrows(LiveException.class, () -> client.run(new Orders()));
            assertEquals(LiveException.Reason.REFUSED, refused.reason());
            assertTrue(refused.getMessage().endsWith(": authentication failed"), refused.getMessage());
            assertEquals(0, client.reconnects());
        }
        assertFalse(options.toString().contains("db-"));
    }

    @Test
    void bytesThatAreNoDbnEndTheSessionWithTheirOffset() throws IOException {
        Server server = new Server(Records.joined(Records.metadata(3), Records.mbo(1, 1), new byte[4]));
        Orders orders = new Orders();
        try (LiveClient client = new LiveClient(server.options("mbo"))) {
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
                void served() {
                    try {
                        Thread.sleep(20_000);
                    } catch (InterruptedException over) {
                        // It ends.
                    }
                }
            };
            LiveOptions options = server.options("mbo").withWaiting(waiting).withPatience(Duration.ofSeconds(5), Duration.ofMillis(50));
            Orders orders = new Orders();
            try (LiveClient client = new LiveClient(options)) {
                LiveException silent = assertThrows(LiveException.class, () -> client.run(orders));
                assertTrue(silent.getMessage().contains("silent"), silent.getMessage());
            }
            assertEquals(List.of(1L), orders.seen);
        }
    }

    @Test
    void aSilentServerIsGivenUp() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            LiveOptions options = LiveOptions.of("127.0.0.1", listener.getLocalPort(), "mbo")
                    .withPatience(Duration.ofMillis(50), Duration.ofMillis(50)).withReconnects(1, Duration.ofMillis(1));
            try (LiveClient client = new LiveClient(options)) {
                assertThrows(LiveException.class, () -> client.run(new Orders()));
            }
        }
    }

    @Test
    void anotherThreadEndsASession() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            LiveClient client = new LiveClient(LiveOptions.of("127.0.0.1", listener.getLocalPort(), "mbo"));
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

    @Test
    void optionsThatCannotWorkAreRefused() {
        for (String[] schemas : new String[][] {{}, {"nothing"}, {"mbp-1", "tbbo"}, {"mbo", "mbo"}}) {
            assertThrows(IllegalArgumentException.class, () -> LiveOptions.of("127.0.0.1", 1, schemas));
        }
        LiveOptions options = LiveOptions.of("127.0.0.1", 1, "mbo");
        assertThrows(IllegalArgumentException.class, () -> options.withSymbols("A|start=1"));
        assertThrows(IllegalArgumentException.class, () -> options.withSymbols("A\nstart_session"));
        assertThrows(IllegalArgumentException.class, () -> options.withSnapshot().withStart(5));
        assertEquals(List.of("ABC=", "BRK A"), options.withSymbols("ABC=", "BRK A").symbols());
        assertThrows(IllegalArgumentException.class, () -> options.withKey("short"));
        assertThrows(IllegalArgumentException.class, () -> options.withSlowReader("drop"));
        assertThrows(IllegalArgumentException.class, () -> options.withReconnects(-1, Duration.ZERO));
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
            LiveOptions options = server.options("mbo").withReconnects(2, Duration.ofMillis(1)).withWhenRefused(whenRefused);
            try (LiveClient client = new LiveClient(options)) {
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
