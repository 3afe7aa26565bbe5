package io.tapeworks.client.live;

import io.tapeworks.client.dbn.Dbn;
import io.tapeworks.client.dbn.Record;
import java.util.Arrays;
import java.util.List;

/**
 * What a session that is begun anew has to leave out: what has come already. Each record type has a place of its own, since the time of
 * an interval's record is the interval's beginning.
 *
 * <p>{@code start=} of a live server is inclusive, and several records may have one time: those of the last time come once more, in the
 * same order.
 */
final class Resume {
    private static final int TYPES = 256;
    private static final long NONE = -1;

    private long count;
    private long first = NONE;
    /** By record type: the greatest time so far, and how many records have it. */
    private final long[] last = new long[TYPES];
    private final long[] atLast = new long[TYPES];
    /** How many records of that time are still to be left out, and all before it; none once the session is past it. */
    private final long[] leftOut = new long[TYPES];

    Resume() {
        Arrays.fill(last, NONE);
        Arrays.fill(leftOut, NONE);
    }

    /** Records that came for the first time, without what the server says itself. */
    long count() {
        return count;
    }

    /** Takes note of a record. False when it has come already. */
    boolean takes(Record record) {
        int type = record.recordType();
        if (type == Dbn.SYMBOL_MAPPING || type == Dbn.SYSTEM || type == Dbn.ERROR) {
            return true;
        }
        boolean isNew = record.isSnapshot() || takes(type, record.indexTime());
        count += isNew ? 1 : 0;
        return isNew;
    }

    boolean takes(int type, long time) {
        if (time == Dbn.UNDEF_TIMESTAMP) {
            return true;
        }
        if (first == NONE) {
            first = time;
        }
        if (leftOut[type] != NONE) {
            if (time < last[type]) {
                return false;
            }
            if (time == last[type] && leftOut[type] > 0) {
                leftOut[type] -= 1;
                return false;
            }
            leftOut[type] = NONE;
        }
        if (time > last[type]) {
            last[type] = time;
            atLast[type] = 1;
        } else if (time == last[type]) {
            atLast[type] += 1;
        }
        return true;
    }

    /** Where to begin anew for these schemas, in ns since the epoch, UTC; -1: nothing has come. */
    long begin(List<String> schemas) {
        if (first == NONE) {
            return NONE;
        }
        long start = Long.MAX_VALUE;
        for (String schema : schemas) {
            int type = Dbn.recordTypeOf(schema);
            // Of a schema without a record so far, the interval of the first record of others counts.
            long from = last[type] == NONE ? Math.max(0, first - Dbn.intervalOf(schema)) : last[type];
            start = Math.min(start, from);
        }
        for (int type = 0; type < TYPES; type++) {
            if (last[type] != NONE) {
                leftOut[type] = atLast[type];
            }
        }
        return start;
    }
}
