package io.tapeworks.client.net;

import java.io.IOException;
import java.time.Duration;
import java.util.function.BooleanSupplier;

/** When to connect again: after a pause that doubles, and not too often in a row. */
public final class Retries {
    private static final long LONGEST_MS = 10_000;
    /** So soon a client that is closed notices it. */
    private static final long LOOK_MS = 100;

    private final int attempts;
    private final Duration pause;
    private int failed;
    private long count;

    public Retries(int attempts, Duration pause) {
        this.attempts = attempts;
        this.pause = pause;
    }

    /** How often it was tried again, in all. */
    public long count() {
        return count;
    }

    /** A record came: the next attempt is the first in a row again. */
    public void succeeded() {
        failed = 0;
    }

    /** Waits before the next attempt; throws what the last one failed with if there are no more. */
    public <E extends IOException> void rest(E failure, BooleanSupplier isClosed) throws E {
        if (failed >= attempts) {
            throw failure;
        }
        long left = Math.min(LONGEST_MS, pause.toMillis() << Math.min(failed, 20));
        failed += 1;
        count += 1;
        for (; left > 0 && !isClosed.getAsBoolean(); left -= LOOK_MS) {
            try {
                Thread.sleep(Math.min(LOOK_MS, left));
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw failure;
            }
        }
    }
}
