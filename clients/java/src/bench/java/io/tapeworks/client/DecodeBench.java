package io.tapeworks.client;

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
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** Time and allocation of a record: flyweights, and objects of the same records for comparison. */
@State(Scope.Thread)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 5, time = 2)
public class DecodeBench {
    private static final int RECORDS = 10_000;

    /** An order as an object of its own, as a client without flyweights has it. */
    private record Order(int publisher, long instrument, long tsEvent, long orderId, long price, long size, int flags, char action,
            char side, long tsRecv, long sequence) {}

    private final DbnDecoder decoder = new DbnDecoder();
    private final StreamDecoder streamDecoder = new StreamDecoder();
    private final ByteBuffer orders;
    private final ByteBuffer mixed;
    private final ByteBuffer nbbo = ByteBuffer.wrap(StreamMessages.nbbo(5, "ABC", 10_000_000_000L, 1_700_000_000_000_000_000L));
    private final Sum sum = new Sum();

    private static final class Sum implements RecordHandler, StreamHandler {
        long sum;

        @Override
        public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
            sum += mbo.orderId() ^ mbo.price() ^ mbo.size() ^ mbo.tsRecv() ^ mbo.side();
        }

        @Override
        public void onMbp1(Mbp1 quote, long sequence, boolean endOfBatch) {
            sum += quote.bidPrice(0) ^ quote.askPrice(0) ^ quote.bidSize(0) ^ quote.tsRecv();
        }

        @Override
        public void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {
            sum += nbbo.bidPrice() ^ nbbo.tsRecv() ^ nbbo.symbolByte(0);
        }
    }

    public DecodeBench() {
        ByteBuffer some = ByteBuffer.allocate(RECORDS * Mbo.LENGTH);
        ByteBuffer both = ByteBuffer.allocate(RECORDS * Mbp1.LENGTH);
        java.util.Random random = new java.util.Random(1);
        for (int at = 0; at < RECORDS; at++) {
            some.put(Records.mbo(at, at));
            both.put(random.nextBoolean() ? Records.mbo(at, at) : Records.mbp1(Dbn.MBP_1, at, 0));
        }
        orders = some.flip();
        mixed = both.flip();
        try {
            decoder.decode(ByteBuffer.wrap(Records.metadata(3)), sum);
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }

    @Benchmark
    @OperationsPerInvocation(RECORDS)
    public long mboFlyweights() throws IOException {
        orders.position(0);
        decoder.decode(orders, sum);
        return sum.sum;
    }

    @Benchmark
    @OperationsPerInvocation(RECORDS)
    public long mboAndMbp1Flyweights() throws IOException {
        mixed.position(0);
        decoder.decode(mixed, sum);
        return sum.sum;
    }

    @Benchmark
    @OperationsPerInvocation(RECORDS)
    public long mboObjects() {
        ByteBuffer from = orders.order(ByteOrder.LITTLE_ENDIAN);
        long sum = 0;
        Order[] made = new Order[RECORDS];
        for (int record = 0; record < RECORDS; record++) {
            int at = record * Mbo.LENGTH;
            made[record] = new Order(Short.toUnsignedInt(from.getShort(at + 2)), from.getInt(at + 4), from.getLong(at + 8),
                    from.getLong(at + 16), from.getLong(at + 24), Integer.toUnsignedLong(from.getInt(at + 32)), from.get(at + 36),
                    (char) from.get(at + 38), (char) from.get(at + 39), from.getLong(at + 40), from.getInt(at + 52));
        }
        for (Order order : made) {
            sum += order.orderId() ^ order.price() ^ order.size() ^ order.tsRecv() ^ order.side();
        }
        return sum;
    }

    @Benchmark
    public long streamNbboFlyweight() throws IOException {
        streamDecoder.decode(nbbo, 0, nbbo.limit(), true, sum);
        return sum.sum;
    }
}
