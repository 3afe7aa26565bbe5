// The C++ peers of the SPSC benchmark: `spsc QUEUE ITEMS CAPACITY CORE CORE` prints nanoseconds per item.
//
// The shape is that of bench/src/ring/spsc.rs: one thread pushes the numbers from 0, the other pops and sums them, both spin
// with a pause; the time is from before the producer starts to after the last item is popped.
#include <boost/lockfree/spsc_queue.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <readerwriterqueue/readerwriterqueue.h>
#include <sched.h>
#include <thread>

static void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) std::exit(3);
}

template <class Push, class Pop>
static double measure(uint64_t items, int one, int two, Push push, Pop pop) {
    auto started = std::chrono::steady_clock::now();
    // A thread begins on the core of the one that makes it, where it would wait behind the spinning consumer.
    pin(two);
    std::thread producer([&] {
        for (uint64_t item = 0; item < items; ++item)
            while (!push(item)) __builtin_ia32_pause();
    });
    pin(one);
    uint64_t sum = 0;
    for (uint64_t taken = 0; taken < items; ++taken) {
        uint64_t item;
        while (!pop(item)) __builtin_ia32_pause();
        sum += item;
    }
    auto ended = std::chrono::steady_clock::now();
    producer.join();
    if (sum != items * (items - 1) / 2) std::exit(4);
    return std::chrono::duration<double, std::nano>(ended - started).count() / items;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    uint64_t items = std::strtoull(words[2], nullptr, 10);
    size_t capacity = std::strtoull(words[3], nullptr, 10);
    int one = std::atoi(words[4]), two = std::atoi(words[5]);
    double ns;
    if (!std::strcmp(words[1], "boost")) {
        boost::lockfree::spsc_queue<uint64_t> queue(capacity);
        ns = measure(items, one, two, [&](uint64_t item) { return queue.push(item); },
                     [&](uint64_t &item) { return queue.pop(item); });
    } else if (!std::strcmp(words[1], "moodycamel")) {
        moodycamel::ReaderWriterQueue<uint64_t> queue(capacity);
        ns = measure(items, one, two, [&](uint64_t item) { return queue.try_enqueue(item); },
                     [&](uint64_t &item) { return queue.try_dequeue(item); });
    } else {
        return 2;
    }
    std::printf("%.4f\n", ns);
}
