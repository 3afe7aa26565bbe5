package io.tapeworks.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tapeworks.client.dbn.Dbn;
import io.tapeworks.client.dbn.DbnDecoder;
import io.tapeworks.client.dbn.Mbo;
import io.tapeworks.client.dbn.Mbp1;
import io.tapeworks.client.dbn.RecordHandler;
import io.tapeworks.client.dbn.Records;
import io.tapeworks.client.stream.StreamDecoder;
import io.tapeworks.client.stream.StreamHandler;
import io.tapeworks.client.stream.StreamMessages;
import io.tapeworks.client.stream.StreamNbbo;
import io.tapeworks.client.stream.StreamTrade;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;

/** Once a decoder is made, it allocates nothing. */
final class AllocationTest {
    private static final int ROUNDS = 2_000;
    private static final byte[] NAME = {'A', 'B', 'C'};

    private long sum;

    private interface Work {
        void run() throws IOException;
    }

    /** Bytes that this thread allocates in so many rounds, after as many. */
    private static long allocated(Work work) throws IOException {
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        long least = Long.MAX_VALUE;
        // The compiler may need several attempts until it has removed what escapes nowhere.
        for (int attempt = 0; attempt < 5; attempt++) {
            long before = threads.getCurrentThreadAllocatedBytes();
            for (int round = 0; round < ROUNDS; round++) {
                work.run();
            }
            least = Math.min(least, threads.getCurrentThreadAllocatedBytes() - before);
        }
        return least;
    }

    /** What the measurement itself takes. */
    private static final long NOTHING = 100;

    @Test
    void recordsAllocateNothing() throws IOException {
        byte[] records = {};
        for (int at = 0; at < 50; at++) {
            records = Records.joined(records, Records.mbo(at, at), Records.mbp1(Dbn.MBP_1, at, 0));
        }
        DbnDecoder decoder = new DbnDecoder();
        RecordHandler handler = new RecordHandler() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                sum += mbo.orderId() + mbo.price() + mbo.size() + mbo.tsRecv();
            }

            @Override
            public void onMbp1(Mbp1 quote, long sequence, boolean endOfBatch) {
                sum += quote.bidPrice(0) + quote.askSize(0) + quote.flags() + (quote.bidPriceDouble(0) > 1 ? 1 : 0);
            }
        };
        decoder.decode(ByteBuffer.wrap(Records.metadata(3)), handler);
        ByteBuffer buffer = ByteBuffer.wrap(records);
        long bytes = allocated(() -> {
            buffer.position(0);
            assertTrue(decoder.decode(buffer, handler) == 100);
        });
        assertTrue(bytes < NOTHING, bytes + " bytes for " + ROUNDS * 100 + " records");
        assertEquals(5L * ROUNDS * 100, decoder.records());
    }

    @Test
    void messagesOfTheStreamAllocateNothing() throws IOException {
        byte[] nbbo = StreamMessages.nbbo(5, "ABC", 10, 20);
        byte[] trade = StreamMessages.trade(6, "ABC", 30);
        ByteBuffer buffer = ByteBuffer.wrap(Records.joined(nbbo, trade));
        StreamDecoder decoder = new StreamDecoder();
        StreamHandler handler = new StreamHandler() {
            @Override
            public void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {
                sum += event + nbbo.bidPrice() + (nbbo.isSymbol(NAME) ? 1 : 0);
            }

            @Override
            public void onTrade(StreamTrade trade, long event, boolean endOfBatch) {
                sum += event + trade.price();
            }
        };
        long bytes = allocated(() -> {
            decoder.decode(buffer, 0, nbbo.length, false, handler);
            decoder.decode(buffer, nbbo.length, trade.length, true, handler);
        });
        assertTrue(bytes < NOTHING, bytes + " bytes for " + ROUNDS * 2 + " messages");
        assertEquals(5L * ROUNDS * (5 + 10 + 1 + 6 + 30), sum);
    }
}
