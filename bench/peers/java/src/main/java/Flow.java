import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.YieldingWaitStrategy;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;

/**
 * The packet flows of bench/src/flow.rs: {@code Flow SHAPE JOIN PACKETS CAPACITY RUNS} prints nanoseconds per packet, a line
 * for each run. SHAPE: pipeline, one-to-many, many-to-one. JOIN: queue (an ArrayBlockingQueue for each edge, as its users
 * have it: many producers share one) or disruptor (one LMAX ring for the whole shape, its packets allocated ahead, which is
 * its best form). Runs before the first printed one warm the compiler up.
 */
public final class Flow {
    static final int PACKET_BYTES = 128;
    static final int FRAMES = 64;
    static final int FIRST_PORT = 5000;
    static final int MANY = 3;
    static final int IP = 14;
    static final int DESTINATION = IP + 16;
    static final int NEW_ADDRESS = (239 << 24) | (1 << 16) | (1 << 8) | 1;

    /** A packet: its bytes, and where its UDP header begins. */
    static final class Packet {
        final byte[] bytes = new byte[PACKET_BYTES];
        int udp;
        boolean passed;
    }

    /** Ends a queue. */
    static final Packet LAST = new Packet();

    static final byte[][] TEMPLATES = new byte[FRAMES][];

    static {
        for (int number = 0; number < FRAMES; number++) {
            TEMPLATES[number] = frame(number);
        }
    }

    static int word(byte[] bytes, int at) {
        return (bytes[at] & 0xff) << 8 | bytes[at + 1] & 0xff;
    }

    static void put(byte[] bytes, int at, int word) {
        bytes[at] = (byte) (word >> 8);
        bytes[at + 1] = (byte) word;
    }

    static int folded(int sum) {
        sum = (sum & 0xffff) + (sum >>> 16);
        return (sum & 0xffff) + (sum >>> 16);
    }

    static byte[] frame(int number) {
        byte[] frame = new byte[PACKET_BYTES];
        byte[] macs = {1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 1};
        System.arraycopy(macs, 0, frame, 0, macs.length);
        put(frame, 12, 0x0800);
        frame[IP] = 0x45;
        put(frame, IP + 2, PACKET_BYTES - IP);
        frame[IP + 8] = 64;
        frame[IP + 9] = 17;
        byte[] addresses = {10, 0, 0, 1, (byte) 233, 0, 0, 1};
        System.arraycopy(addresses, 0, frame, IP + 12, addresses.length);
        int sum = 0;
        for (int at = IP; at < IP + 20; at += 2) {
            sum += word(frame, at);
        }
        put(frame, IP + 10, ~folded(sum));
        int udp = IP + 20;
        int length = PACKET_BYTES - udp;
        put(frame, udp, 4000);
        put(frame, udp + 2, FIRST_PORT + number);
        put(frame, udp + 4, length);
        java.util.Arrays.fill(frame, udp + 8, PACKET_BYTES, (byte) number);
        sum = 17 + length;
        for (int at = IP + 12; at < PACKET_BYTES; at += 2) {
            sum += word(frame, at);
        }
        put(frame, udp + 6, ~folded(sum));
        return frame;
    }

    /** The reader's work: copies a frame and finds its headers. */
    static void read(Packet packet, long number) {
        byte[] bytes = packet.bytes;
        System.arraycopy(TEMPLATES[(int) (number % FRAMES)], 0, bytes, 0, PACKET_BYTES);
        if (word(bytes, 12) != 0x0800 || bytes[IP] >> 4 != 4 || bytes[IP + 9] != 17) {
            throw new IllegalStateException("the frame is no UDP over IPv4");
        }
        packet.udp = IP + (bytes[IP] & 0xf) * 4;
    }

    static boolean passes(Packet packet) {
        int port = word(packet.bytes, packet.udp + 2);
        return port >= FIRST_PORT && port < FIRST_PORT + FRAMES;
    }

    /** Writes the new address, and updates both checksums by the two words that change (RFC 1624, equation 3). */
    static void rewrite(Packet packet) {
        byte[] bytes = packet.bytes;
        int change = 0;
        for (int half = 0; half < 2; half++) {
            int is = NEW_ADDRESS >>> (half == 0 ? 16 : 0) & 0xffff;
            change += (~word(bytes, DESTINATION + 2 * half) & 0xffff) + is;
            put(bytes, DESTINATION + 2 * half, is);
        }
        put(bytes, IP + 10, ~folded((~word(bytes, IP + 10) & 0xffff) + change));
        int checksum = ~folded((~word(bytes, packet.udp + 6) & 0xffff) + change) & 0xffff;
        put(bytes, packet.udp + 6, checksum == 0 ? 0xffff : checksum);
    }

    static long share(long packets, int index) {
        return packets / MANY + (index < packets % MANY ? 1 : 0);
    }

    interface Work {
        void run() throws InterruptedException;
    }

    /** Starts a thread for each work, lets all go at once, and returns the nanoseconds until the last has ended. */
    static long timed(List<Work> works, CountDownLatch ended) throws Exception {
        CyclicBarrier barrier = new CyclicBarrier(works.size() + 1);
        List<Thread> threads = new ArrayList<>();
        for (Work work : works) {
            Thread thread = new Thread(() -> {
                try {
                    barrier.await();
                    work.run();
                } catch (InterruptedException | BrokenBarrierException broken) {
                    throw new IllegalStateException(broken);
                }
            });
            thread.start();
            threads.add(thread);
        }
        while (barrier.getNumberWaiting() < works.size()) {
            Thread.yield();
        }
        long started = System.nanoTime();
        barrier.await();
        for (Thread thread : threads) {
            thread.join();
        }
        ended.await();
        return System.nanoTime() - started;
    }

    static void push(ArrayBlockingQueue<Packet> queue, long packets) throws InterruptedException {
        for (long number = 0; number < packets; number++) {
            Packet packet = new Packet();
            read(packet, number);
            queue.put(packet);
        }
        queue.put(LAST);
    }

    /** Takes packets until so many producers have ended; returns how many. */
    static long drain(ArrayBlockingQueue<Packet> queue, int producers) throws InterruptedException {
        long count = 0;
        while (producers > 0) {
            if (queue.take() == LAST) {
                producers--;
            } else {
                count++;
            }
        }
        return count;
    }

    static long byQueues(String shape, long packets, int capacity, long[] counts) throws Exception {
        List<ArrayBlockingQueue<Packet>> queues = new ArrayList<>();
        for (int queue = 0; queue < MANY; queue++) {
            queues.add(new ArrayBlockingQueue<>(capacity));
        }
        List<Work> works = new ArrayList<>();
        switch (shape) {
            case "pipeline" -> {
                works.add(() -> push(queues.get(0), packets));
                works.add(() -> {
                    for (Packet packet = queues.get(0).take(); packet != LAST; packet = queues.get(0).take()) {
                        if (passes(packet)) {
                            queues.get(1).put(packet);
                        }
                    }
                    queues.get(1).put(LAST);
                });
                works.add(() -> {
                    for (Packet packet = queues.get(1).take(); packet != LAST; packet = queues.get(1).take()) {
                        rewrite(packet);
                        queues.get(2).put(packet);
                    }
                    queues.get(2).put(LAST);
                });
                works.add(() -> counts[0] = drain(queues.get(2), 1));
            }
            case "one-to-many" -> {
                works.add(() -> {
                    for (long number = 0; number < packets; number++) {
                        Packet packet = new Packet();
                        read(packet, number);
                        for (ArrayBlockingQueue<Packet> queue : queues) {
                            queue.put(packet);
                        }
                    }
                    for (ArrayBlockingQueue<Packet> queue : queues) {
                        queue.put(LAST);
                    }
                });
                for (int end = 0; end < MANY; end++) {
                    int place = end;
                    works.add(() -> counts[place] = drain(queues.get(place), 1));
                }
            }
            case "many-to-one" -> {
                for (int producer = 0; producer < MANY; producer++) {
                    long share = share(packets, producer);
                    works.add(() -> push(queues.get(0), share));
                }
                works.add(() -> counts[0] = drain(queues.get(0), MANY));
            }
            default -> throw new IllegalArgumentException(shape);
        }
        return timed(works, new CountDownLatch(0));
    }

    /** Counts packets and signals when it has seen all. */
    static EventHandler<Packet> end(long packets, int place, long[] counts, CountDownLatch ended) {
        return (packet, sequence, endOfBatch) -> {
            counts[place]++;
            if (sequence == packets - 1) {
                ended.countDown();
            }
        };
    }

    static long byDisruptor(String shape, long packets, int capacity, long[] counts) throws Exception {
        boolean many = shape.equals("many-to-one");
        Disruptor<Packet> disruptor = new Disruptor<>(Packet::new, capacity, Executors.defaultThreadFactory(),
            many ? ProducerType.MULTI : ProducerType.SINGLE, new YieldingWaitStrategy());
        CountDownLatch ended = new CountDownLatch(shape.equals("one-to-many") ? MANY : 1);
        switch (shape) {
            case "pipeline" -> {
                EventHandler<Packet> filter = (packet, sequence, endOfBatch) -> packet.passed = passes(packet);
                EventHandler<Packet> rewriter = (packet, sequence, endOfBatch) -> {
                    if (packet.passed) {
                        rewrite(packet);
                    }
                };
                disruptor.handleEventsWith(filter).then(rewriter).then(end(packets, 0, counts, ended));
            }
            case "one-to-many" -> {
                for (int place = 0; place < MANY; place++) {
                    disruptor.handleEventsWith(end(packets, place, counts, ended));
                }
            }
            case "many-to-one" -> disruptor.handleEventsWith(end(packets, 0, counts, ended));
            default -> throw new IllegalArgumentException(shape);
        }
        RingBuffer<Packet> ring = disruptor.start();
        List<Work> works = new ArrayList<>();
        for (int producer = 0; producer < (many ? MANY : 1); producer++) {
            long share = many ? share(packets, producer) : packets;
            works.add(() -> {
                for (long number = 0; number < share; number++) {
                    long at = ring.next();
                    try {
                        read(ring.get(at), number);
                    } finally {
                        ring.publish(at);
                    }
                }
            });
        }
        long took = timed(works, ended);
        disruptor.shutdown();
        return took;
    }

    static double run(String shape, String join, long packets, int capacity) throws Exception {
        long[] counts = new long[MANY];
        long took = switch (join) {
            case "queue" -> byQueues(shape, packets, capacity, counts);
            case "disruptor" -> byDisruptor(shape, packets, capacity, counts);
            default -> throw new IllegalArgumentException(join);
        };
        long ended = java.util.Arrays.stream(counts).sum();
        if (ended != (shape.equals("one-to-many") ? MANY * packets : packets)) {
            throw new IllegalStateException(ended + " packets of " + packets + " ended");
        }
        return (double) took / packets;
    }

    public static void main(String[] words) throws Exception {
        long packets = Long.parseLong(words[2]);
        int capacity = Integer.parseInt(words[3]);
        long until = System.nanoTime() + 3_000_000_000L;
        for (int warm = 0; warm < 2 || packets * warm < 1_000_000 && System.nanoTime() < until; warm++) {
            run(words[0], words[1], packets, capacity);
        }
        for (int runs = Integer.parseInt(words[4]); runs > 0; runs--) {
            System.out.printf("%.4f%n", run(words[0], words[1], packets, capacity));
        }
    }
}
