package io.tapeworks.client.live;

import io.tapeworks.client.net.Sockets;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** The bytes of a TCP connection, with or without TLS, blocking or not. */
final class Connection implements AutoCloseable {
    /** A longer line is none of the protocol. */
    private static final int MAX_LINE = 64 << 10;

    private final SocketChannel channel;
    private Socket socket;
    private InputStream input;
    private OutputStream output;
    private boolean isBusy;

    /** A connection that is not open yet, and that {@link #close} keeps from opening. */
    Connection() throws IOException {
        channel = SocketChannel.open();
    }

    /** Connects, with the TLS handshake if there is TLS. The caller closes the connection even if this fails. */
    void open(LiveOptions options, LiveOptions.Server server, Duration answerTimeout) throws IOException {
        channel.socket().connect(new InetSocketAddress(server.host(), server.port()), Sockets.milliseconds(options.connectTimeout));
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.socket().setSoTimeout(Sockets.milliseconds(answerTimeout));
        if (options.tls == null) {
            socket = channel.socket();
        } else {
            socket = Sockets.secured(channel.socket(), options.tls, server.host(), server.port());
        }
        input = socket.getInputStream();
        output = socket.getOutputStream();
    }

    /** A line of the protocol, without its end. What comes behind it stays where it is: it is read byte by byte. */
    String line() throws IOException {
        StringBuilder line = new StringBuilder();
        while (true) {
            int next = input.read();
            if (next < 0) {
                throw new EOFException("the connection was closed");
            }
            if (next == '\n') {
                return line.toString();
            }
            if (line.length() == MAX_LINE) {
                throw new IOException("a line of more than " + MAX_LINE + " characters");
            }
            line.append((char) next);
        }
    }

    void send(String text) throws IOException {
        output.write(text.getBytes(StandardCharsets.UTF_8));
        output.flush();
    }

    /** The lines are over: from now on {@link #read}. */
    void begin(LiveOptions options) throws IOException {
        isBusy = options.waiting == LiveOptions.Waiting.BUSY;
        if (isBusy) {
            channel.configureBlocking(false);
        } else {
            socket.setSoTimeout(Sockets.milliseconds(options.silenceTimeout));
        }
    }

    /** Reads what there is. 0: nothing yet, of a busy connection alone; -1: the end. */
    int read(ByteBuffer into) throws IOException {
        if (isBusy) {
            return channel.read(into);
        }
        int read;
        try {
            read = input.read(into.array(), into.arrayOffset() + into.position(), into.remaining());
        } catch (SocketTimeoutException silent) {
            throw new IOException("the server is silent, without a heartbeat", silent);
        }
        if (read > 0) {
            into.position(into.position() + read);
        }
        return read;
    }

    /** May be called by another thread: a read that waits ends. */
    @Override
    public void close() throws IOException {
        channel.close();
    }
}
