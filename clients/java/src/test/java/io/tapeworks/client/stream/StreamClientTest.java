package io.tapeworks.client.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tapeworks.client.dbn.Records;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
final class StreamClientTest {
    private static byte[] frame(int first, byte[] payload) {
        if (payload.length < 126) {
            return Records.joined(new byte[] {(byte) first, (byte) payload.length}, payload);
        }
        ByteBuffer header = ByteBuffer.allocate(4).put((byte) first).put((byte) 126).putShort((short) payload.length);
        return Records.joined(header.array(), payload);
    }

    private static String header(InputStream input) throws IOException {
        StringBuilder header = new StringBuilder();
        while (header.indexOf("\r\n\r\n") < 0) {
            header.append((char) input.read());
        }
        return header.toString();
    }

    private static void answer(Socket socket) throws IOException {
        String header = header(socket.getInputStream());
        String key = header.replaceAll("(?s).*Sec-WebSocket-Key: ([^\r]*)\r.*", "$1");
        socket.getOutputStream().write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + StreamClient.acceptOf(key)
                + "\r\n\r\n").getBytes(StandardCharsets.ISO_8859_1));
    }

    private interface Connected {
        void serve(Socket socket) throws IOException;
    }

    /** A server that serves one connection after the other. */
    private static URI server(Connected... connections) throws IOException {
        ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
        Thread thread = new Thread(() -> {
            try (listener) {
                for (Connected connected : connections) {
                    try (Socket socket = listener.accept()) {
                        connected.serve(socket);
                    }
                }
            } catch (IOException over) {
                // The client has what it wants.
            }
        });
        thread.setDaemon(true);
        thread.start();
        return URI.create("ws://127.0.0.1:" + listener.getLocalPort() + "/stream?encoding=protobuf");
    }

    /** Writes what each record says. */
    private static final class Notes implements StreamHandler {
        final List<String> seen = new ArrayList<>();

        @Override
        public void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {
            assertTrue(nbbo.hasBidPrice());
            assertFalse(nbbo.hasAskPrice());
            assertEquals(4_000_000_000L, nbbo.bidSize());
            assertEquals(1, nbbo.state());
            seen.add(event + " " + nbbo.symbol() + " " + nbbo.bidPrice());
        }

        @Override
        public void onTrade(StreamTrade trade, long event, boolean endOfBatch) {
            assertEquals(2, trade.side());
            seen.add(event + " " + trade.symbol() + " trade " + trade.price());
        }

        @Override
        public void onText(String text, boolean endOfBatch) {
            seen.add(text);
        }

        @Override
        public void onConnectFailed(IOException failure) {
            seen.add(failure.getMessage());
        }

        @Override
        public void onReconnect(long reconnects) {
            seen.add("reconnect " + reconnects);
        }
    }

    @Test
    void messagesComeWholeFromPartsAndAroundPings() throws IOException {
        byte[] nbbo = StreamMessages.nbbo(7, "ABC", -12, 5);
        byte[] trade = StreamMessages.trade(8, "XYZ".repeat(60), 3);
        URI address = server(socket -> {
            answer(socket);
            byte[] start = java.util.Arrays.copyOf(nbbo, 3);
            byte[] rest = java.util.Arrays.copyOfRange(nbbo, 3, nbbo.length);
            byte[] all = Records.joined(frame(0x02, start), frame(0x89, "still there?".getBytes()), frame(0x80, rest), frame(0x82, trade),
                    frame(0x81, "{\"json\":1}".getBytes()));
            for (byte next : all) {
                socket.getOutputStream().write(next);
            }
            // The pong is masked, and says what the ping said.
            InputStream input = socket.getInputStream();
            assertEquals(0x8A, input.read());
            assertEquals(0x80 | 12, input.read());
            byte[] mask = input.readNBytes(4);
            byte[] said = input.readNBytes(12);
            for (int at = 0; at < said.length; at++) {
                said[at] ^= mask[at & 3];
            }
            byte[] close = Records.joined(new byte[] {0x03, (byte) 0xE8}, new String(said, StandardCharsets.UTF_8).getBytes());
            socket.getOutputStream().write(frame(0x88, close));
            input.readAllBytes();
        });
        Notes notes = new Notes();
        try (StreamClient client = new StreamClient(address, "secret").withReconnects(0, Duration.ZERO)) {
            IOException ended = assertThrows(IOException.class, () -> client.run(notes));
            assertEquals("the server closed the stream: 1000 still there?", ended.getMessage());
            assertEquals(3, client.records());
        }
        assertEquals(List.of("7 ABC -12", "8 " + "XYZ".repeat(60) + " trade 3", "{\"json\":1}"), notes.seen);
    }

    @Test
    void aStreamThatBreaksIsConnectedAgainAndSaysSo() throws IOException {
        Connected one = socket -> {
            answer(socket);
            socket.getOutputStream().write(frame(0x82, StreamMessages.nbbo(1, "A", 1, 1)));
        };
        Notes notes = new Notes();
        try (StreamClient client = new StreamClient(server(one, one), null).withReconnects(1, Duration.ofMillis(1))) {
            assertThrows(IOException.class, () -> client.run(notes));
        }
        assertEquals(List.of("1 A 1", "reconnect 1", "1 A 1"), notes.seen.subList(0, 3));
    }

    private static URI away() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            return URI.create("ws://127.0.0.1:" + listener.getLocalPort() + "/stream");
        }
    }

    @Test
    @Timeout(5)
    void aFirstConnectionThatFailsIsReportedImmediately() throws IOException {
        URI away = away();
        String refused = "127.0.0.1:" + away.getPort() + ": Connection refused";
        Notes notes = new Notes();
        try (StreamClient client = new StreamClient(away, null)) {
            assertEquals(refused, assertThrows(IOException.class, () -> client.run(notes)).getMessage());
        }
        assertEquals(List.of(), notes.seen);
        try (StreamClient client = new StreamClient(away, null).waitForServer().withReconnects(1, Duration.ofMillis(1))) {
            assertEquals(refused, assertThrows(IOException.class, () -> client.run(notes)).getMessage());
        }
        assertEquals(List.of(refused, refused), notes.seen);
    }

    @Test
    void anInterruptEndsARunAndClosesItsConnection() throws Exception {
        CountDownLatch received = new CountDownLatch(1);
        CountDownLatch closed = new CountDownLatch(1);
        URI address = server(socket -> {
            answer(socket);
            socket.getOutputStream().write(frame(0x82, StreamMessages.trade(1, "A", 1)));
            if (socket.getInputStream().read() < 0) {
                closed.countDown();
            }
        });
        List<String> ended = Collections.synchronizedList(new ArrayList<>());
        StreamClient client = new StreamClient(address, null);
        Thread thread = new Thread(() -> {
            try {
                client.run(new StreamHandler() {
                    @Override
                    public void onTrade(StreamTrade trade, long event, boolean endOfBatch) {
                        received.countDown();
                    }
                });
                ended.add("returned, interrupted: " + Thread.currentThread().isInterrupted());
            } catch (IOException | RuntimeException thrown) {
                ended.add(thrown.toString());
            }
        });
        thread.start();
        assertTrue(received.await(10, TimeUnit.SECONDS));
        thread.interrupt();
        thread.join(2_000);
        client.close();
        assertEquals(List.of("returned, interrupted: true"), ended);
        assertTrue(closed.await(5, TimeUnit.SECONDS), "the connection is closed");
    }

    @Test
    void recordsAreReadableAndPricesAreDoublesAndDecimals() throws IOException {
        byte[] nbbo = StreamMessages.nbbo(1, "ABC", 187_250_000_000L, 1_000_000_001L);
        byte[] trade = StreamMessages.trade(2, "XYZ", 5_000_000L);
        List<String> seen = new ArrayList<>();
        StreamHandler handler = new StreamHandler() {
            @Override
            public void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {
                assertEquals(187.25, nbbo.bidPriceDouble());
                assertEquals(new BigDecimal("187.250000000"), nbbo.bidPriceDecimal());
                assertTrue(Double.isNaN(nbbo.askPriceDouble()));
                assertNull(nbbo.askPriceDecimal());
                seen.add(nbbo.toString());
            }

            @Override
            public void onTrade(StreamTrade trade, long event, boolean endOfBatch) {
                assertEquals(0.005, trade.priceDouble());
                assertEquals(new BigDecimal("0.005000000"), trade.priceDecimal());
                seen.add(trade.toString());
            }
        };
        for (byte[] message : new byte[][] {nbbo, trade}) {
            new StreamDecoder().decode(ByteBuffer.wrap(message), 0, message.length, true, handler);
        }
        assertEquals(List.of(
                "StreamNbbo{symbol=ABC, bid=187.25, bidSize=4000000000, ask=none, askSize=0, time=1970-01-01T00:00:01.000000001Z}",
                "StreamTrade{symbol=XYZ, price=0.005, size=0, time=1970-01-01T00:00:00Z}"), seen);
    }

    @Test
    void aRefusalSaysWhy() throws IOException {
        URI address = server(socket -> {
            header(socket.getInputStream());
            socket.getOutputStream().write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 8\r\n\r\nno token".getBytes());
        });
        try (StreamClient client = new StreamClient(address, null)) {
            IOException refused = assertThrows(StreamException.class, () -> client.run(new Notes()));
            assertEquals("the server refused: HTTP/1.1 401 Unauthorized: no token", refused.getMessage());
        }
        assertThrows(IllegalArgumentException.class, () -> new StreamClient(URI.create("http://127.0.0.1/"), null));
        assertThrows(IllegalArgumentException.class, () -> new StreamClient(URI.create("ws://127.0.0.1/"), "a\r\nb"));
    }

    @Test
    void randomBytesAreMessagesOrOneError() throws IOException {
        Random random = new Random(7);
        byte[] nbbo = StreamMessages.nbbo(7, "ABC", -12, 5);
        StreamDecoder decoder = new StreamDecoder();
        for (int round = 0; round < 20_000; round++) {
            byte[] noise = nbbo.clone();
            for (int change = random.nextInt(4); change >= 0; change--) {
                noise[random.nextInt(noise.length)] = (byte) random.nextInt();
            }
            try {
                decoder.decode(ByteBuffer.wrap(noise), 0, noise.length, true, new StreamHandler() {
                    @Override
                    public void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {
                        assertEquals(nbbo.symbolLength() == 0, nbbo.symbol().isEmpty());
                    }
                });
            } catch (StreamException wrong) {
                assertFalse(wrong.getMessage().isEmpty());
            }
            WebSocketFrames frames = new WebSocketFrames();
            byte[] frame = frame(0x82, noise);
            frame[random.nextInt(2)] = (byte) random.nextInt();
            try {
                frames.take(ByteBuffer.wrap(frame), (opcode, buffer, from, length, endOfBatch) -> assertTrue(length <= noise.length));
            } catch (StreamException wrong) {
                assertFalse(wrong.getMessage().isEmpty());
            }
        }
    }
}
