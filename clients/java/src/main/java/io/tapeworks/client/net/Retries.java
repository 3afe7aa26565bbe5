package io.tapeworks.client.net;

import java.io.IOException;
import java.time.Duration;
import java.util.function.BooleanSupplier;

/** Limits how often to reconnect in a row, and waits before each attempt. The pause doubles. */
public final class Retries {
    private static final long LONGEST_MS = 10_000;
    /** Interval at which a pause checks whether the client was closed. */
    private static final long CHECK_MS = 100;

    private final int attempts;
    private final Duration pause;
    private int failed;
    private long count;

    public Retries(int attempts, Duration pause) {
        this.attempts = attempts;
        this.pause = pause;
    }

    /** Attempts to reconnect so far. */
    public long count() {
        return count;
    }

    /** Restarts the row of attempts, because a record arrived. */
    public void succeeded() {
        failed = 0;
    }

    /** Waits before the next attempt, or throws the last failure if no attempt is left. Returns early if closed or interrupted. */
    public <E extends IOException> void rest(E failure, BooleanSupplier isClosed) throws E {
        if (failed >= attempts) {
            throw failure;
        }
        long left = Math.min(LONGEST_MS, pause.toMillis() << Math.min(failed, 20));
        failed += 1;
        count += 1;
        for (; left > 0 && !isClosed.getAsBoolean(); left -= CHECK_MS) {
            try {
                Thread.sleep(Math.min(CHECK_MS, left));
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }
}
