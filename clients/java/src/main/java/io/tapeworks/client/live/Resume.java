package io.tapeworks.client.live;

import io.tapeworks.client.dbn.Dbn;
import io.tapeworks.client.dbn.Record;
import io.tapeworks.client.dbn.SystemMessage;
import java.util.Arrays;
import java.util.List;

/**
 * What a session that is begun anew has to leave out: what has come already. Each record type has a place of its own, since the time of
 * an interval's record is the interval's beginning.
 *
 * <p>A live server replays, in the order in which they came, the records whose time is {@code start=} or later. Times may step back: what
 * waited behind a gap comes behind what filled it. So a session begins anew some seconds before its last time, and leaves out as many
 * records as it has had from there on.
 */
final class Resume {
    private static final int TYPES = 256;
    static final long NONE = -1;
    private static final String FINISHED = "Finished ";
    private static final String SNAPSHOT = " snapshot";
    /** How far back a session begins anew, in ns, if it has the times of all records since then. */
    static final long WINDOW = 10_000_000_000L;
    /** How many times of a record type are kept; a power of two. */
    static final int KEPT = 1 << 16;

    /** The records of one type. */
    private static final class Place {
        long first = NONE;
        long last = NONE;
        /** The times of the last records, in a ring. */
        final long[] times = new long[KEPT];
        long count;
        /** The greatest time that is no longer in the ring, or that the requested snapshot includes. */
        long gone = NONE;
        /** Where the session was begun anew, and how many records from there on are still to be left out. */
        long from;
        long left;
        /** Whether the server has not yet repeated any record since the session resumed. */
        boolean isUnconfirmed;
        /** Whether a record came that is none of the snapshot which was requested. */
        boolean isPastSnapshot;

        void note(long time) {
            if (first == NONE) {
                first = time;
            }
            int at = (int) (count & KEPT - 1);
            if (count >= KEPT) {
                gone = Math.max(gone, times[at]);
            }
            times[at] = time;
            count += 1;
            last = Math.max(last, time);
        }

        void forget() {
            first = NONE;
            gone = NONE;
            count = 0;
        }

        /** The requested snapshot is complete: what it includes is not requested again. */
        void finishSnapshot() {
            gone = Math.max(gone, last);
            last = gone;
            first = NONE;
            count = 0;
        }

        /** Nothing is repeated, and the next record follows a hole. */
        void continueFromNow() {
            left = 0;
            isUnconfirmed = last > NONE;
        }

        boolean canBegin() {
            return count > 0 || gone > NONE;
        }

        /** Where to begin anew. What came at the first time may have begun before the session did. */
        void begin() {
            if (count == 0) {
                from = gone + 1;
                left = 0;
                return;
            }
            from = Math.min(last, Math.max(last - WINDOW, Math.max(first, gone) + 1));
            isUnconfirmed = true;
            left = 0;
            for (int at = 0; at < Math.min(count, KEPT); at++) {
                left += times[at] >= from ? 1 : 0;
            }
        }
    }

    private final Place[] places = new Place[TYPES];
    private long count;
    private long first = NONE;
    private boolean hasSnapshot;
    /** The record types whose requested snapshot is complete. */
    private final boolean[] finished = new boolean[TYPES];
    private long missingFrom = NONE;

    /** The time from which records before the last new one may be missing, in ns since the epoch; -1: none are. Resets it. */
    long takeMissingFrom() {
        long from = missingFrom;
        missingFrom = NONE;
        return from;
    }

    /** A connection begins, with a snapshot of the present or without. */
    void connected(boolean hasSnapshot) {
        this.hasSnapshot = hasSnapshot;
        Arrays.fill(finished, false);
        for (Place place : places) {
            if (place != null) {
                place.isPastSnapshot = false;
            }
        }
    }

    /** Records that came for the first time, without what the server says itself. */
    long count() {
        return count;
    }

    /** Takes note of a record. False when it has come already. */
    boolean takes(Record record) {
        int type = record.recordType();
        if (hasSnapshot && record instanceof SystemMessage message) {
            String text = message.msg();
            if (text.length() > FINISHED.length() + SNAPSHOT.length() && text.startsWith(FINISHED) && text.endsWith(SNAPSHOT)) {
                finishSnapshot(Dbn.recordTypeOf(text.substring(FINISHED.length(), text.length() - SNAPSHOT.length())));
            }
        }
        if (type == Dbn.SYMBOL_MAPPING || type == Dbn.SYSTEM || type == Dbn.ERROR) {
            return true;
        }
        boolean isNew = takes(type, record.indexTime(), record.isSnapshot());
        count += isNew ? 1 : 0;
        return isNew;
    }

    boolean takes(int type, long time, boolean isFlagged) {
        if (time == Dbn.UNDEF_TIMESTAMP) {
            return true;
        }
        Place place = places[type];
        if (place == null) {
            place = new Place();
            places[type] = place;
        }
        // A venue's own snapshot is flagged too: it is of the stream, and a replay has it again.
        if (hasSnapshot && isFlagged && !place.isPastSnapshot) {
            place.gone = Math.max(place.gone, time);
            return true;
        }
        place.isPastSnapshot = true;
        // A record later than all before shows that the replay is over, or shorter than requested.
        if (time > place.last) {
            place.left = 0;
        }
        if (place.left > 0) {
            if (time >= place.from) {
                place.left -= 1;
                place.isUnconfirmed = false;
            }
            return false;
        }
        if (place.isUnconfirmed) {
            missingFrom = place.last;
            place.isUnconfirmed = false;
            // A later replay may contain the missing records, so counting starts again after the hole.
            place.forget();
        }
        if (first == NONE) {
            first = time;
        }
        place.note(time);
        return true;
    }

    /**
     * The requested snapshot of a type is complete. Until then records of some instruments were left out, and a replay does not leave them
     * out, so counting starts again.
     */
    void finishSnapshot(int type) {
        if (type < 0) {
            return;
        }
        finished[type] = true;
        Place place = places[type];
        if (place == null) {
            return;
        }
        place.finishSnapshot();
        for (Place other : places) {
            if (other != null && other.count > 0) {
                return;
            }
        }
        first = NONE;
    }

    /** Continues without a replay: nothing is repeated, and the first record of each type follows a hole. */
    void continueFromNow() {
        for (Place place : places) {
            if (place != null) {
                place.continueFromNow();
            }
        }
    }

    /**
     * Prepares to resume; then {@link #start} says from where. False: the session begins anew, as it was requested, because nothing has come
     * or the requested snapshot is not complete. Records that came beside an incomplete snapshot are then followed by a hole.
     */
    boolean begin(List<String> schemas) {
        boolean isIncomplete = hasSnapshot && schemas.stream().anyMatch(schema -> !finished[Dbn.recordTypeOf(schema)]);
        if (isIncomplete) {
            continueFromNow();
            return false;
        }
        boolean canResume = first != NONE;
        for (Place place : places) {
            if (place != null && place.canBegin()) {
                place.begin();
                canResume = true;
            }
        }
        return canResume;
    }

    /** Where a schema's records begin anew, in ns since the epoch, UTC; -1: nothing has come of any schema. */
    long start(String schema) {
        Place place = places[Dbn.recordTypeOf(schema)];
        if (place != null && place.canBegin()) {
            return place.from;
        }
        // Of a schema without a record so far, the interval of the first record of others counts.
        return first == NONE ? NONE : Math.max(0, first - Dbn.intervalOf(schema));
    }
}
