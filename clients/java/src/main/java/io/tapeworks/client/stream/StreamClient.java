package io.tapeworks.client.stream;

import io.tapeworks.client.net.Retries;
import io.tapeworks.client.net.Sockets;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Base64;
import java.util.Locale;
import javax.net.ssl.SSLSocketFactory;

/**
 * A client of a plant's stream: the NBBO, trades and gaps over a WebSocket.
 *
 * <p>If the first connection fails, {@link #run} throws immediately unless {@link #waitForServer} is set. If an established stream is
 * lost, the client reconnects, and {@link StreamHandler#onReconnect} reports it. A client belongs to one thread; any thread may
 * {@link #close} it, or interrupt that thread. Once a stream runs, its records allocate nothing (in Protobuf; JSON arrives as strings,
 * and the answer to a ping takes some bytes).
 *
 * <pre>{@code
 * URI address = URI.create("ws://127.0.0.1:8080/stream?schema=nbbo,trades&encoding=protobuf");
 * try (StreamClient client = new StreamClient(address, null)) {
 *     client.run(handler);
 * }
 * }</pre>
 *
 * <p>Source: RFC 6455; {@code tapeworks.proto}.
 */
public final class StreamClient implements AutoCloseable {
    private static final int BUFFER = 1 << 18;
    private static final int MAX_HEADER = 64 << 10;
    private static final String ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

    private final URI address;
    private final String token;
    private final SecureRandom random = new SecureRandom();
    private final StreamDecoder decoder = new StreamDecoder();
    private final WebSocketFrames frames = new WebSocketFrames();
    private final WebSocketFrames.Sink sink = this::take;
    private ByteBuffer buffer = ByteBuffer.allocate(BUFFER);
    private Retries retries = new Retries(10, Duration.ofMillis(100));
    private Duration connectTimeout = Duration.ofSeconds(2);
    private Duration answerTimeout = Duration.ofSeconds(10);
    private Duration silenceTimeout = Duration.ofMinutes(5);
    private SSLSocketFactory tls;
    private volatile Socket socket;
    private volatile boolean isClosed;
    private boolean waitForServer;
    private StreamHandler handler;
    private boolean hasBegun;
    private long records;

    /**
     * A stream that is not connected yet: {@link #run} connects.
     *
     * @param address such as {@code ws://127.0.0.1:8080/stream?schema=nbbo&encoding=protobuf}, or {@code wss:}
     * @param token the token of {@code [web]}; null: none
     * @throws IllegalArgumentException the address is none of a WebSocket, or the token cannot be sent
     */
    public StreamClient(URI address, String token) {
        String scheme = address.getScheme();
        if (address.getHost() == null || !("ws".equals(scheme) || "wss".equals(scheme))) {
            throw new IllegalArgumentException("'" + address + "': expected ws://HOST:PORT/stream");
        }
        if (token != null && !token.chars().allMatch(c -> c > ' ' && c < 0x7F)) {
            throw new IllegalArgumentException("the token has characters that cannot be sent");
        }
        this.address = address;
        this.token = token;
        this.tls = "wss".equals(scheme) ? (SSLSocketFactory) SSLSocketFactory.getDefault() : null;
    }

    /**
     * Sets how many attempts in a row to reconnect after the stream was lost, and the pause before the first one. The pause doubles with
     * each attempt, up to 10 s. Default: 10 attempts, 100 ms. With 0 attempts the client never reconnects.
     */
    public StreamClient withReconnects(int attempts, Duration pause) {
        this.retries = new Retries(attempts, pause);
        return this;
    }

    /**
     * Retries the first connection too, with the attempts and pauses of {@link #withReconnects}; {@link StreamHandler#onConnectFailed}
     * reports each failure immediately. Default: the client throws when its first attempt fails.
     */
    public StreamClient waitForServer() {
        waitForServer = true;
        return this;
    }

    /**
     * Limits how long the server may take to accept the connection, to answer, and to be silent later. Default: 2 s, 10 s, 5 min.
     */
    public StreamClient withTimeouts(Duration connect, Duration answer, Duration silence) {
        connectTimeout = connect;
        answerTimeout = answer;
        silenceTimeout = silence;
        return this;
    }

    /** The keys and certificates of a {@code wss:} address. */
    public StreamClient withTls(SSLSocketFactory tls) {
        if (this.tls == null) {
            throw new IllegalArgumentException("TLS is for addresses that begin with wss:");
        }
        this.tls = java.util.Objects.requireNonNull(tls, "a wss: address needs TLS");
        return this;
    }

    /** Messages so far. */
    public long records() {
        return records;
    }

    /** Attempts to reconnect so far. */
    public long reconnects() {
        return retries.count();
    }

    /** Messages without a kind that this client knows. */
    public long unknown() {
        return decoder.unknown();
    }

    /**
     * Passes records to the handler until {@link #close}, or until the thread is interrupted.
     *
     * <p>An interrupt closes the connection; {@code run} returns with the thread's interrupt flag set.
     *
     * @throws IOException the server refused, the first connection failed, or no attempt to reconnect is left
     */
    public void run(StreamHandler handler) throws IOException {
        this.handler = handler;
        while (!isStopped()) {
            long before = records;
            try {
                connect();
                if (hasBegun) {
                    handler.onReconnect(retries.count());
                }
                hasBegun = true;
                read();
            } catch (IOException broken) {
                disconnect();
                if (records > before) {
                    retries.succeeded();
                }
                if (isStopped()) {
                    return;
                }
                if (broken instanceof StreamException || !hasBegun && !waitForServer) {
                    throw broken;
                }
                if (!hasBegun) {
                    handler.onConnectFailed(broken);
                }
                retries.rest(broken, () -> isClosed);
            } catch (RuntimeException wrong) {
                disconnect();
                throw wrong;
            }
        }
        disconnect();
    }

    private boolean isStopped() {
        return isClosed || Thread.currentThread().isInterrupted();
    }

    private void connect() throws IOException {
        int port = address.getPort() >= 0 ? address.getPort() : tls != null ? 443 : 80;
        // Interrupting the thread wakes it from reading a channel's socket, but not from reading a plain socket.
        Socket made = SocketChannel.open().socket();
        socket = made;
        // What closes it from now on finds it; what did before is seen here.
        if (isClosed) {
            throw new EOFException("the stream was closed");
        }
        try {
            open(made, port);
        } catch (StreamException refused) {
            throw refused;
        } catch (IOException failed) {
            throw new IOException(address.getHost() + ":" + port + ": " + Sockets.cause(failed), failed);
        }
    }

    private void open(Socket made, int port) throws IOException {
        made.connect(new InetSocketAddress(address.getHost(), port), Sockets.milliseconds(connectTimeout));
        made.setTcpNoDelay(true);
        made.setSoTimeout(Sockets.milliseconds(answerTimeout));
        if (tls != null) {
            made = Sockets.secured(made, tls, address.getHost(), port);
            socket = made;
        }
        byte[] nonce = new byte[16];
        random.nextBytes(nonce);
        String key = Base64.getEncoder().encodeToString(nonce);
        String path = address.getRawPath().isEmpty() ? "/" : address.getRawPath();
        String query = address.getRawQuery() == null ? "" : "?" + address.getRawQuery();
        String request = "GET " + path + query + " HTTP/1.1\r\nHost: " + address.getHost() + ":" + port
                + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n"
                + (token == null ? "" : "Authorization: Bearer " + token + "\r\n") + "\r\n";
        OutputStream output = made.getOutputStream();
        output.write(request.getBytes(StandardCharsets.ISO_8859_1));
        output.flush();
        frames.restart();
        buffer.clear();
        checkAnswer(made.getInputStream(), key);
        made.setSoTimeout(Sockets.milliseconds(silenceTimeout));
    }

    private void checkAnswer(InputStream input, String key) throws IOException {
        StringBuilder header = new StringBuilder();
        while (header.length() < 4 || header.indexOf("\r\n\r\n", header.length() - 4) < 0) {
            int next = input.read();
            if (next < 0) {
                throw new EOFException("the server closed the connection instead of an answer");
            }
            if (header.length() == MAX_HEADER) {
                throw new StreamException("an answer of more than " + MAX_HEADER + " bytes");
            }
            header.append((char) next);
        }
        String[] lines = header.toString().split("\r\n");
        String[] status = lines[0].split(" ", 3);
        if (status.length < 2 || !status[1].equals("101")) {
            String said = "the server refused: " + lines[0] + body(input, lines);
            // Of its own failures it may recover.
            throw status.length > 1 && status[1].startsWith("5") ? new IOException(said) : new StreamException(said);
        }
        String accept = field(lines, "sec-websocket-accept");
        if (!acceptOf(key).equals(accept)) {
            throw new StreamException("no WebSocket server: it answered the key with " + accept);
        }
        if (!"websocket".equalsIgnoreCase(field(lines, "upgrade"))) {
            throw new StreamException("no WebSocket server: it upgrades to " + field(lines, "upgrade"));
        }
    }

    /** What a refusal says. */
    private static String body(InputStream input, String[] lines) throws IOException {
        String length = field(lines, "content-length");
        if (length == null || !length.matches("[0-9]{1,5}")) {
            return "";
        }
        byte[] text = input.readNBytes(Integer.parseInt(length));
        return ": " + new String(text, StandardCharsets.UTF_8).strip();
    }

    private static String field(String[] lines, String name) {
        for (String line : lines) {
            int colon = line.indexOf(':');
            if (colon > 0 && line.substring(0, colon).toLowerCase(Locale.ROOT).equals(name)) {
                return line.substring(colon + 1).strip();
            }
        }
        return null;
    }

    /** The answer to a key: RFC 6455, section 4.2.2. */
    static String acceptOf(String key) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-1").digest((key + ACCEPT).getBytes(StandardCharsets.ISO_8859_1));
            return Base64.getEncoder().encodeToString(hash);
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError("every Java has SHA-1", impossible);
        }
    }

    private void read() throws IOException {
        Socket socket = this.socket;
        if (socket == null) {
            throw new EOFException("the stream was closed");
        }
        InputStream input = socket.getInputStream();
        while (!isStopped()) {
            int read;
            try {
                read = input.read(buffer.array(), buffer.position(), buffer.remaining());
            } catch (SocketTimeoutException silent) {
                throw new IOException("the server is silent", silent);
            }
            if (read < 0) {
                throw new EOFException("the server closed the connection");
            }
            buffer.position(buffer.position() + read).flip();
            int wanted;
            try {
                wanted = frames.take(buffer, sink);
            } finally {
                buffer.compact();
            }
            if (wanted > buffer.capacity()) {
                buffer = ByteBuffer.allocate(wanted).put(buffer.flip());
            }
        }
    }

    private void take(int opcode, ByteBuffer from, int at, int length, boolean endOfBatch) throws IOException {
        switch (opcode) {
            case WebSocketFrames.BINARY -> {
                records += 1;
                decoder.decode(from, at, length, endOfBatch, handler);
            }
            case WebSocketFrames.TEXT -> {
                records += 1;
                handler.onText(new String(from.array(), at, length, StandardCharsets.UTF_8), endOfBatch);
            }
            case WebSocketFrames.PING -> send(WebSocketFrames.PONG, from, at, length);
            case WebSocketFrames.CLOSE -> {
                int code = length < 2 ? 1005 : Byte.toUnsignedInt(from.get(at)) << 8 | Byte.toUnsignedInt(from.get(at + 1));
                String reason = length < 3 ? "" : " " + new String(from.array(), at + 2, length - 2, StandardCharsets.UTF_8);
                send(WebSocketFrames.CLOSE, from, at, Math.min(2, length));
                throw new EOFException("the server closed the stream: " + code + reason);
            }
            default -> { }
        }
    }

    private void send(int opcode, ByteBuffer from, int at, int length) throws IOException {
        Socket socket = this.socket;
        if (socket == null) {
            return;
        }
        byte[] frame = new byte[6 + length];
        byte[] mask = new byte[4];
        random.nextBytes(mask);
        frame[0] = (byte) (0x80 | opcode);
        frame[1] = (byte) (0x80 | length);
        System.arraycopy(mask, 0, frame, 2, mask.length);
        for (int place = 0; place < length; place++) {
            frame[6 + place] = (byte) (from.get(at + place) ^ mask[place & 3]);
        }
        socket.getOutputStream().write(frame);
    }

    private void disconnect() {
        Socket ended = socket;
        socket = null;
        if (ended != null) {
            try {
                ended.close();
            } catch (IOException ignored) {
                // It is given up in any case.
            }
        }
    }

    /** Ends the stream. A read that waits in another thread returns immediately. */
    @Override
    public void close() {
        isClosed = true;
        disconnect();
    }
}
