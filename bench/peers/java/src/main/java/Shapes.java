import com.lmax.disruptor.BlockingWaitStrategy;
import com.lmax.disruptor.BusySpinWaitStrategy;
import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.WaitStrategy;
import com.lmax.disruptor.YieldingWaitStrategy;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;

/**
 * The LMAX Disruptor in the shapes of lab/src/catalogue/disruptor.rs: {@code Shapes SHAPE WAIT EVENTS CAPACITY RUNS} prints
 * nanoseconds per event, a line for each run. The first runs warm the compiler up and are not printed.
 */
public final class Shapes {
    static final class Value {
        long value;
    }

    /** Sums the values and signals when it has seen all. */
    static final class Sum implements EventHandler<Value> {
        final long last;
        final CountDownLatch done;
        long sum;

        Sum(long last, CountDownLatch done) {
            this.last = last;
            this.done = done;
        }

        @Override
        public void onEvent(Value event, long sequence, boolean endOfBatch) {
            sum += event.value;
            if (sequence == last) {
                done.countDown();
            }
        }
    }

    /** Adds one in place. */
    static final class Add implements EventHandler<Value> {
        @Override
        public void onEvent(Value event, long sequence, boolean endOfBatch) {
            event.value += 1;
        }
    }

    static WaitStrategy wait(String name) {
        return switch (name) {
            case "busy" -> new BusySpinWaitStrategy();
            case "yield" -> new YieldingWaitStrategy();
            case "block" -> new BlockingWaitStrategy();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static double run(String shape, String wait, long events, int capacity) throws Exception {
        int producers = shape.equals("two-to-one") ? 2 : 1;
        ProducerType type = shape.endsWith("-one") || shape.endsWith("-many") ? ProducerType.MULTI : ProducerType.SINGLE;
        Disruptor<Value> disruptor =
            new Disruptor<>(Value::new, capacity, Executors.defaultThreadFactory(), type, wait(wait));
        CountDownLatch done = new CountDownLatch(1);
        Sum sum = new Sum(events - 1, done);
        switch (shape) {
            case "unicast", "batch", "one-of-many", "two-to-one" -> disruptor.handleEventsWith(sum);
            case "pipeline" -> disruptor.handleEventsWith(new Add()).then(sum);
            case "one-to-many" -> {
                done = new CountDownLatch(2);
                sum = new Sum(events - 1, done);
                disruptor.handleEventsWith(sum, new Sum(events - 1, done));
            }
            case "diamond" -> {
                CountDownLatch others = new CountDownLatch(2);
                Sum left = new Sum(events - 1, others);
                Sum right = new Sum(events - 1, others);
                disruptor.handleEventsWith(left, right).then(sum);
            }
            default -> throw new IllegalArgumentException(shape);
        }
        RingBuffer<Value> ring = disruptor.start();
        long started = System.nanoTime();
        if (shape.equals("batch")) {
            int batch = 64;
            for (long next = 0; next < events; next += batch) {
                long high = ring.next(batch);
                for (long at = high - batch + 1; at <= high; at++) {
                    ring.get(at).value = at;
                }
                ring.publish(high - batch + 1, high);
            }
        } else if (producers == 1) {
            for (long next = 0; next < events; next++) {
                long at = ring.next();
                ring.get(at).value = next;
                ring.publish(at);
            }
        } else {
            CyclicBarrier barrier = new CyclicBarrier(producers + 1);
            for (int producer = 0; producer < producers; producer++) {
                long share = events / producers;
                new Thread(() -> {
                    try {
                        barrier.await();
                    } catch (Exception broken) {
                        throw new IllegalStateException(broken);
                    }
                    for (long next = 0; next < share; next++) {
                        long at = ring.next();
                        ring.get(at).value = next;
                        ring.publish(at);
                    }
                }).start();
            }
            barrier.await();
            started = System.nanoTime();
        }
        done.await();
        long ended = System.nanoTime();
        disruptor.shutdown();
        long share = events / producers;
        long expected = producers * (share * (share - 1) / 2) + (shape.equals("pipeline") ? events : 0);
        if (sum.sum != expected) {
            throw new IllegalStateException("the sum is " + sum.sum + ", not " + expected);
        }
        return (double) (ended - started) / events;
    }

    public static void main(String[] words) throws Exception {
        long events = Long.parseLong(words[2]) / 64 * 64;
        int capacity = Integer.parseInt(words[3]);
        for (int warm = 0; warm < 2; warm++) {
            run(words[0], words[1], events / 2 / 64 * 64, capacity);
        }
        for (int runs = Integer.parseInt(words[4]); runs > 0; runs--) {
            System.out.printf("%.4f%n", run(words[0], words[1], events, capacity));
        }
    }
}
