package io.tapeworks.client.dbn;

/** An instrument's number and name, before its first record. */
public final class SymbolMapping extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 176;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The kind of the name. */
    public int stypeIn() {
        return Byte.toUnsignedInt(buffer.get(offset + 16));
    }

    /** The name. */
    public String stypeInSymbol() {
        return text(17, 71);
    }

    /** The kind of the name that it stands for. */
    public int stypeOut() {
        return Byte.toUnsignedInt(buffer.get(offset + 88));
    }

    /** The name that it stands for. */
    public String stypeOutSymbol() {
        return text(89, 71);
    }

    /** Valid from, in ns since the epoch, UTC. */
    public long startTs() {
        return buffer.getLong(offset + 160);
    }

    /** Valid until, in ns since the epoch, UTC. */
    public long endTs() {
        return buffer.getLong(offset + 168);
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "stypeInSymbol", stypeInSymbol());
        field(line, "stypeOutSymbol", stypeOutSymbol());
    }
}
