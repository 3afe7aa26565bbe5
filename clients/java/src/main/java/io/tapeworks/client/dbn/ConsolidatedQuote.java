package io.tapeworks.client.dbn;

/** The NBBO, and the venues that make it. Its sizes are those of all venues. */
public abstract class ConsolidatedQuote extends Levels {
    ConsolidatedQuote() {}

    @Override
    public final int levels() {
        return 1;
    }

    /** The feed of the first venue at the bid price. */
    public final int bidPublisher(int level) {
        return Short.toUnsignedInt(buffer.getShort(at(level) + 24));
    }

    /** The feed of the first venue at the ask price. */
    public final int askPublisher(int level) {
        return Short.toUnsignedInt(buffer.getShort(at(level) + 28));
    }
}
