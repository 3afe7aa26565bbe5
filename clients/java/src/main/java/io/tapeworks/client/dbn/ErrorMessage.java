package io.tapeworks.client.dbn;

/** What the server refuses, or has left out. */
public final class ErrorMessage extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 320;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The text. */
    public String err() {
        return text(16, 302);
    }

    /** Its code; 255: none. */
    public int code() {
        return Byte.toUnsignedInt(buffer.get(offset + 318));
    }

    /** Whether it is the last of its kind. */
    public int isLast() {
        return Byte.toUnsignedInt(buffer.get(offset + 319));
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "code", code());
        field(line, "err", err());
    }
}
