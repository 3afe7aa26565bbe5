package io.tapeworks.client.dbn;

import java.io.IOException;

/**
 * Takes records, as an event handler of the LMAX Disruptor takes events. A record is a flyweight: it is gone when the method returns.
 *
 * <p>{@code sequence} counts the records that were handed over, from 0 on and over all connections. {@code endOfBatch} says that no
 * further record has arrived: what gathers records for one write or one commit lets go of them then.
 *
 * <p>Implement {@link #onRecord}, or the methods of the types that matter.
 */
public interface RecordHandler {
    /** Takes the records that no method of their type takes. */
    default void onRecord(Record record, long sequence, boolean endOfBatch) {}

    default void onMbo(Mbo record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onTrade(Trade record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onMbp1(Mbp1 record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onMbp10(Mbp10 record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onBbo(Bbo record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onCmbp1(Cmbp1 record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onCbbo(Cbbo record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onOhlcv(Ohlcv record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onStatus(Status record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onDefinition(Definition record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onImbalance(Imbalance record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onStatistics(Statistics record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onSymbolMapping(SymbolMapping record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onSystemMessage(SystemMessage record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onErrorMessage(ErrorMessage record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    default void onUnknown(UnknownRecord record, long sequence, boolean endOfBatch) {
        onRecord(record, sequence, endOfBatch);
    }

    /**
     * Reports that the first session cannot begin yet. Called after each failed attempt, before the pause, until a session begins; only
     * with {@code waitForServer()}, because without it {@code run} throws the failure instead. The message names servers and causes.
     */
    default void onConnectFailed(IOException failure) {}

    /**
     * Reports that a lost session resumes, perhaps at another server. The server sends its mappings again, and the records that have not
     * been delivered yet. {@code reconnects} counts the attempts so far.
     */
    default void onReconnect(long reconnects) {}

    /**
     * The server of a resumed session did not replay far enough back: records of {@code recordType} between these times, in ns since the
     * epoch, may be missing. Called before the first record after the hole.
     */
    default void onMissing(int recordType, long fromNanos, long toNanos) {}
}
