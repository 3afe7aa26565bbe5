package io.tapeworks.client.dbn;

/** What the server says that is no record: a heartbeat, an acknowledgement, a gap. */
public final class SystemMessage extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 320;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The text. */
    public String msg() {
        return text(16, 303);
    }

    /** Its code: 0 heartbeat, 1 acknowledgement of a subscription, 2 slow reader, 3 end of a replay, 4 end of an interval; 255: none. */
    public int code() {
        return Byte.toUnsignedInt(buffer.get(offset + 319));
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "code", code());
        field(line, "msg", msg());
    }
}
