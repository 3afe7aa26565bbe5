package io.tapeworks.client.stream;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Takes the frames of a WebSocket server apart and puts messages together. It allocates nothing but room for a message that is longer
 * than all before it. Buffers are big-endian, as a new one is.
 *
 * <p>Source: RFC 6455, section 5.
 */
final class WebSocketFrames {
    static final int CONTINUATION = 0;
    static final int TEXT = 1;
    static final int BINARY = 2;
    static final int CLOSE = 8;
    static final int PING = 9;
    static final int PONG = 10;

    /** A message of the stream has some hundred bytes. */
    static final int MAX_MESSAGE = 16 << 20;
    private static final int MAX_CONTROL = 125;

    /** Takes messages. */
    interface Sink {
        /** A whole message, or a control frame's payload. */
        void onMessage(int opcode, ByteBuffer buffer, int from, int length, boolean endOfBatch) throws IOException;
    }

    private ByteBuffer parts = ByteBuffer.allocate(1 << 12);
    /** The opcode of a message in parts; 0: none has begun. */
    private int open;

    /** A new connection begins. */
    void restart() {
        parts.clear();
        open = CONTINUATION;
    }

    /**
     * Bytes that the frame at {@code at} has in all; 0: its header is not whole.
     */
    private static long frameLength(ByteBuffer buffer, int at) throws StreamException {
        int there = buffer.limit() - at;
        if (there < 2) {
            return 0;
        }
        int second = Byte.toUnsignedInt(buffer.get(at + 1));
        if ((second & 0x80) != 0) {
            throw new StreamException("a frame of the server is masked");
        }
        int coded = second & 0x7F;
        int header = headerLength(coded);
        if (there < header) {
            return 0;
        }
        long length = switch (coded) {
            case 126 -> Short.toUnsignedInt(buffer.getShort(at + 2));
            case 127 -> buffer.getLong(at + 2);
            default -> coded;
        };
        if (length < 0 || length > MAX_MESSAGE) {
            throw new StreamException("a frame of " + Long.toUnsignedString(length) + " bytes, more than " + MAX_MESSAGE);
        }
        return header + length;
    }

    private static int headerLength(int coded) {
        return coded == 126 ? 4 : coded == 127 ? 10 : 2;
    }

    /**
     * Takes whole frames between a buffer's position and its limit, and moves the position behind them.
     *
     * @return the bytes that the buffer must have room for, to take the next frame
     */
    int take(ByteBuffer buffer, Sink sink) throws IOException {
        int at = buffer.position();
        try {
            while (true) {
                long length = frameLength(buffer, at);
                if (length == 0 || length > buffer.limit() - at) {
                    return (int) length;
                }
                int next = at + (int) length;
                long following = frameLength(buffer, next);
                boolean endOfBatch = following == 0 || following > buffer.limit() - next;
                int frame = at;
                at = next;
                hand(buffer, frame, (int) length, endOfBatch, sink);
            }
        } finally {
            buffer.position(at);
        }
    }

    private void hand(ByteBuffer buffer, int at, int frameLength, boolean endOfBatch, Sink sink) throws IOException {
        int first = Byte.toUnsignedInt(buffer.get(at));
        int header = headerLength(Byte.toUnsignedInt(buffer.get(at + 1)) & 0x7F);
        int from = at + header;
        int length = frameLength - header;
        boolean isFinal = (first & 0x80) != 0;
        int opcode = first & 0x0F;
        if ((first & 0x70) != 0) {
            throw new StreamException("a frame has reserved bits");
        }
        if (opcode > BINARY && opcode < CLOSE || opcode > PONG) {
            throw new StreamException("a frame with opcode " + opcode);
        }
        if (opcode >= CLOSE) {
            if (!isFinal || length > MAX_CONTROL) {
                throw new StreamException("a control frame is in parts or too long");
            }
            sink.onMessage(opcode, buffer, from, length, endOfBatch);
            return;
        }
        if ((opcode == CONTINUATION) != (open != CONTINUATION)) {
            throw new StreamException(open == CONTINUATION ? "a part of no message" : "a message inside another");
        }
        if (isFinal && open == CONTINUATION) {
            sink.onMessage(opcode, buffer, from, length, endOfBatch);
            return;
        }
        if (open == CONTINUATION) {
            open = opcode;
        }
        if (parts.position() + (long) length > MAX_MESSAGE) {
            throw new StreamException("a message of more than " + MAX_MESSAGE + " bytes");
        }
        if (length > parts.remaining()) {
            ByteBuffer larger = ByteBuffer.allocate(Math.min(MAX_MESSAGE, Integer.highestOneBit(parts.position() + length) << 1));
            parts = larger.put(parts.flip());
        }
        parts.put(parts.position(), buffer, from, length).position(parts.position() + length);
        if (isFinal) {
            int whole = open;
            open = CONTINUATION;
            int bytes = parts.position();
            parts.clear();
            sink.onMessage(whole, parts, 0, bytes, endOfBatch);
        }
    }
}
