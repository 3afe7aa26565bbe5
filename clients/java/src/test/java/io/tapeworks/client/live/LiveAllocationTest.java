package io.tapeworks.client.live;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tapeworks.client.dbn.Mbo;
import io.tapeworks.client.dbn.RecordHandler;
import io.tapeworks.client.dbn.Records;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A session that runs allocates nothing, at the first server or at the next one. */
@Timeout(60)
final class LiveAllocationTest {
    private static final int RECORDS = 200_000;
    /** From here on nothing may be allocated: all that is made once is made. */
    private static final int WARM = 100_000;

    /** Orders from a number on, each a nanosecond later than the one before. */
    private static byte[] stream(int from) {
        byte[] begin = Records.metadata(3);
        ByteBuffer stream = ByteBuffer.allocate(begin.length + (RECORDS - from) * Mbo.LENGTH).put(begin);
        for (int at = from; at < RECORDS; at++) {
            stream.put(Records.mbo(at, at + 1));
        }
        return stream.array();
    }

    /** Counts, and notes what its thread has allocated when it is warm and at the end. */
    private static final class Orders implements RecordHandler {
        private final com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        int count;
        long warm;
        long end;

        @Override
        public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
            assert mbo.orderId() == count;
            count += 1;
            if (count == WARM) {
                warm = threads.getCurrentThreadAllocatedBytes();
            } else if (count == RECORDS) {
                end = threads.getCurrentThreadAllocatedBytes();
            }
        }
    }

    private static void allocatesNothing(LiveOptions.Waiting waiting) throws IOException {
        byte[] whole = stream(0);
        LiveClientTest.Server broken = new LiveClientTest.Server(java.util.Arrays.copyOf(whole, 10_000));
        // The session at the next server begins with the second order, of which the client has some.
        LiveClientTest.Server serves = new LiveClientTest.Server(stream(1));
        LiveOptions.Builder options = broken.options("mbo").servers(broken.address() + "," + serves.address())
                .waiting(waiting).reconnects(1, Duration.ofMillis(1));
        Orders orders = new Orders();
        try (LiveClient client = new LiveClient(options.build())) {
            assertThrows(LiveException.class, () -> client.run(orders));
        }
        assertEquals(RECORDS, orders.count);
        long bytes = orders.end - orders.warm;
        assertTrue(bytes < 100, bytes + " bytes for " + (RECORDS - WARM) + " records, " + waiting);
    }

    @Test
    void aSessionThatWaitsForBytesAllocatesNothing() throws IOException {
        allocatesNothing(LiveOptions.Waiting.BLOCKING);
    }

    @Test
    void aSessionThatWaitsBusyAllocatesNothing() throws IOException {
        allocatesNothing(LiveOptions.Waiting.BUSY);
    }
}
