package io.tapeworks.client.stream;

import java.io.IOException;

/**
 * Takes records of a stream, as an event handler of the LMAX Disruptor takes events. A record is a flyweight: it is gone when the
 * method returns.
 *
 * <p>{@code event} is the number of the event in the plant that the record comes from; it rises for each instrument. {@code endOfBatch}
 * says that no further record has arrived.
 */
public interface StreamHandler {
    default void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {}

    default void onTrade(StreamTrade trade, long event, boolean endOfBatch) {}

    default void onGap(StreamGap gap, long event, boolean endOfBatch) {}

    default void onLagged(StreamLagged lagged, long event, boolean endOfBatch) {}

    /** A message of a stream in JSON, as its text. */
    default void onText(String text, boolean endOfBatch) {}

    /**
     * Reports that the first connection failed. Called after each failed attempt, before the pause, until the stream begins; only with
     * {@link StreamClient#waitForServer}, because without it {@code run} throws the failure instead.
     */
    default void onConnectFailed(IOException failure) {}

    /** The client has connected again: the state of each instrument comes once more, and trades of the time between are missing. */
    default void onReconnect(long reconnects) {}
}
