package io.tapeworks.client.dbn;

/** A change of a venue's book, or a trade, with levels of the book. */
public abstract class BookChange extends Quote {
    BookChange() {}

    /** The action: {@code A} add, {@code C} cancel, {@code M} modify, {@code R} clear, {@code T} trade. */
    public final char action() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 28));
    }

    /** The level that changed. */
    public final int depth() {
        return Byte.toUnsignedInt(buffer.get(offset + 31));
    }

    /** The time of receipt less the time of sending, in ns. */
    public final int tsInDelta() {
        return buffer.getInt(offset + 40);
    }

    /** The venue's sequence number. */
    public final long sequence() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 44));
    }
}
