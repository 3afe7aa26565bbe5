package io.tapeworks.client.tool;

import io.tapeworks.client.dbn.Dbn;
import io.tapeworks.client.dbn.Record;
import io.tapeworks.client.dbn.RecordHandler;
import io.tapeworks.client.dbn.SystemMessage;
import io.tapeworks.client.live.LiveClient;
import io.tapeworks.client.live.LiveException;
import io.tapeworks.client.live.LiveOptions;
import io.tapeworks.client.stream.StreamClient;
import io.tapeworks.client.stream.StreamGap;
import io.tapeworks.client.stream.StreamHandler;
import io.tapeworks.client.stream.StreamLagged;
import io.tapeworks.client.stream.StreamNbbo;
import io.tapeworks.client.stream.StreamTrade;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Prints records of a plant, one on each line as JSON: to look at, and for tests. */
public final class Print {
    private static final String USAGE = """
            usage: tapeworks-client live HOST:PORT,... SCHEMA,... [COUNT]
                   tapeworks-client stream URL [COUNT]

            Prints COUNT records as JSON, one per line, or all until the server ends the session.

            live    DBN live, such as 127.0.0.1:13000 mbo,trades. Several addresses are servers with the same records, such as a
                    pair. TAPEWORKS_KEY: the key (default: the key of tapeworks demo). TAPEWORKS_START: start of a replay, in ns
                    since the epoch. TAPEWORKS_RECONNECTS: attempts to reconnect when the session is lost (default: 0).
            stream  The stream of a plant's page, such as ws://127.0.0.1:8080/stream?schema=nbbo&encoding=protobuf.
                    TAPEWORKS_TOKEN: the token of [web].
            """;

    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final StringBuilder line = new StringBuilder();
    private final Map<Class<?>, List<Method>> fields = new HashMap<>();
    private Runnable end = () -> {};
    private long left;

    private Print(long count) {
        left = count;
    }

    /** Exits with 0 after the requested number of records, 1 when the session ends before, 2 for wrong arguments. */
    public static void main(String[] arguments) {
        try {
            boolean isLive = arguments.length > 0 && arguments[0].equals("live");
            if (arguments.length < (isLive ? 3 : 2)) {
                throw new IllegalArgumentException("expected live HOST:PORT,... SCHEMA,... or stream URL");
            }
            long count = arguments.length > (isLive ? 3 : 2)
                    ? whole("COUNT", arguments[arguments.length - 1], 1) : Long.MAX_VALUE;
            Print print = new Print(count);
            try {
                switch (arguments[0]) {
                    case "live" -> print.live(arguments[1], arguments[2].split(","));
                    case "stream" -> print.stream(URI.create(arguments[1]));
                    default -> throw new IllegalArgumentException("'" + arguments[0] + "': expected live or stream");
                }
            } finally {
                print.out.flush();
            }
            if (count != Long.MAX_VALUE && print.left > 0) {
                System.err.println("error: " + print.left + " records are missing");
                System.exit(1);
            }
        } catch (IllegalArgumentException wrong) {
            System.err.println("error: " + wrong.getMessage() + "\n" + USAGE);
            System.exit(2);
        } catch (IOException failed) {
            System.err.println("error: " + failed.getMessage());
            System.exit(1);
        }
    }

    private void live(String addresses, String[] schemas) throws IOException {
        LiveOptions.Builder options = LiveOptions.builder()
                .servers(addresses)
                .key(System.getenv().getOrDefault("TAPEWORKS_KEY", LiveOptions.DEMO_KEY))
                .schemas(schemas)
                .reconnects((int) number("TAPEWORKS_RECONNECTS", 0), Duration.ofMillis(100));
        if (System.getenv("TAPEWORKS_START") != null) {
            options.start(number("TAPEWORKS_START", 0));
        }
        try (LiveClient client = new LiveClient(options.build())) {
            end = client::close;
            client.run(new RecordHandler() {
                @Override
                public void onRecord(Record record, long sequence, boolean endOfBatch) {
                    if (left <= 0) {
                        return;
                    }
                    print(record);
                    if (!isMessage(record)) {
                        done();
                    }
                    flush(endOfBatch);
                }

                @Override
                public void onReconnect(long reconnects) {
                    System.err.println("goes on at " + client.server());
                }

                @Override
                public void onSystemMessage(SystemMessage message, long sequence, boolean endOfBatch) {
                    System.err.println(message.msg());
                    flush(endOfBatch);
                }
            });
        } catch (LiveException ended) {
            if (ended.reason() != LiveException.Reason.ENDED) {
                throw ended;
            }
        }
    }

    private static long number(String variable, long otherwise) {
        String text = System.getenv(variable);
        return text == null ? otherwise : whole(variable, text, 0);
    }

    private static long whole(String what, String text, long least) {
        try {
            long number = Long.parseLong(text);
            if (number >= least) {
                return number;
            }
        } catch (NumberFormatException none) {
            // It is said below.
        }
        throw new IllegalArgumentException(what + " is '" + text + "': expected a whole number from " + least + " on");
    }

    private static boolean isMessage(Record record) {
        int type = record.recordType();
        return type == Dbn.SYMBOL_MAPPING || type == Dbn.ERROR;
    }

    private void done() {
        left -= 1;
        if (left <= 0) {
            end.run();
        }
    }

    private void flush(boolean endOfBatch) {
        if (endOfBatch) {
            out.flush();
        }
    }

    /** All fields of a record, by the names of its methods in the way of DBN: {@code tsEvent} is {@code ts_event}. */
    private void print(Record record) {
        line.setLength(0);
        line.append("{\"record_type\":").append(record.recordType());
        for (Method field : fields.computeIfAbsent(record.getClass(), Print::fieldsOf)) {
            line.append(",\"").append(snake(field.getName())).append("\":");
            try {
                if (field.getParameterCount() == 0) {
                    value(field.invoke(record));
                } else {
                    int levels = (int) record.getClass().getMethod("levels").invoke(record);
                    for (int level = 0; level < levels; level++) {
                        line.append(level == 0 ? '[' : ',');
                        value(field.invoke(record, level));
                    }
                    line.append(']');
                }
            } catch (InvocationTargetException | IllegalAccessException | NoSuchMethodException wrong) {
                throw new IllegalStateException(field.getName(), wrong);
            }
        }
        out.println(line.append('}'));
    }

    private static List<Method> fieldsOf(Class<?> type) {
        List<String> others = List.of(
                "levels", "minimumLength", "indexTime", "isSnapshot", "recordType", "length", "tsOut", "copyTo", "symbol", "toString");
        List<Method> fields = new ArrayList<>();
        for (Class<?> of = type; of != Object.class; of = of.getSuperclass()) {
            for (Method method : of.getDeclaredMethods()) {
                // A price as double or decimal repeats the field in 1e-9.
                boolean isConverted = method.getReturnType() == double.class || method.getReturnType() == BigDecimal.class;
                boolean isField = Modifier.isPublic(method.getModifiers()) && method.getParameterCount() <= 1 && !isConverted;
                if (isField && !others.contains(method.getName())) {
                    fields.add(method);
                }
            }
        }
        fields.sort(Comparator.comparing(Method::getName));
        return fields;
    }

    private static String snake(String name) {
        return name.replaceAll("([A-Z])", "_$1").toLowerCase(java.util.Locale.ROOT);
    }

    private void value(Object value) {
        if (value instanceof Number) {
            line.append(value);
        } else {
            text(value.toString());
        }
    }

    private void text(String text) {
        line.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                line.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                line.append(String.format("\\u%04x", (int) c));
            } else {
                line.append(c);
            }
        }
        line.append('"');
    }

    private void stream(URI address) throws IOException {
        StreamClient client = new StreamClient(address, System.getenv("TAPEWORKS_TOKEN")).withReconnects(0, Duration.ZERO);
        try (client) {
            end = client::close;
            client.run(new StreamPrinter());
        }
    }

    /** Prints as the server does in JSON: in protobuf's mapping, with the names of the declaration. */
    private final class StreamPrinter implements StreamHandler {
        private static final List<String> STATES = Arrays.asList("ONE_SIDED", "NORMAL", "LOCKED", "CROSSED");
        private static final List<String> SIDES = Arrays.asList("NONE", "BID", "ASK");

        private StreamPrinter begin(long event, String kind) {
            line.setLength(0);
            line.append("{\"event\":\"").append(Long.toUnsignedString(event)).append("\",\"").append(kind).append("\":{");
            return this;
        }

        private void name(String name) {
            if (line.charAt(line.length() - 1) != '{') {
                line.append(',');
            }
            line.append('"').append(name).append("\":");
        }

        private StreamPrinter number(String name, long number) {
            name(name);
            line.append(number);
            return this;
        }

        /** Numbers of 64 bits are texts in protobuf's mapping. */
        private StreamPrinter wide(String name, long number) {
            name(name);
            line.append('"').append(number).append('"');
            return this;
        }

        private StreamPrinter text(String name, String text) {
            name(name);
            Print.this.text(text);
            return this;
        }

        private void end(boolean endOfBatch) {
            print(line.append("}}"), endOfBatch);
        }

        private void print(CharSequence text, boolean endOfBatch) {
            if (left > 0) {
                out.println(text);
                done();
            }
            flush(endOfBatch);
        }

        @Override
        public void onNbbo(StreamNbbo nbbo, long event, boolean endOfBatch) {
            begin(event, "nbbo").text("symbol", nbbo.symbol()).wide("ts_event", nbbo.tsEvent()).wide("ts_recv", nbbo.tsRecv());
            if (nbbo.hasBidPrice()) {
                wide("bid_price", nbbo.bidPrice());
            }
            if (nbbo.hasAskPrice()) {
                wide("ask_price", nbbo.askPrice());
            }
            number("bid_size", nbbo.bidSize()).number("ask_size", nbbo.askSize())
                    .number("bid_publisher", nbbo.bidPublisher()).number("ask_publisher", nbbo.askPublisher())
                    .number("flags", nbbo.flags()).text("state", "MARKET_STATE_" + STATES.get(nbbo.state())).end(endOfBatch);
        }

        @Override
        public void onTrade(StreamTrade trade, long event, boolean endOfBatch) {
            begin(event, "trade").text("symbol", trade.symbol()).wide("ts_event", trade.tsEvent()).wide("ts_recv", trade.tsRecv())
                    .wide("price", trade.price()).number("size", trade.size()).number("publisher", trade.publisher())
                    .text("side", "SIDE_" + SIDES.get(trade.side())).number("flags", trade.flags()).end(endOfBatch);
        }

        @Override
        public void onGap(StreamGap gap, long event, boolean endOfBatch) {
            begin(event, "gap").number("publisher", gap.publisher()).number("channel", gap.channel()).wide("first", gap.first())
                    .wide("count", gap.count()).wide("ts_event", gap.tsEvent()).wide("ts_recv", gap.tsRecv()).end(endOfBatch);
        }

        @Override
        public void onLagged(StreamLagged lagged, long event, boolean endOfBatch) {
            begin(event, "lagged").wide("conflated", lagged.conflated()).wide("dropped_trades", lagged.droppedTrades())
                    .wide("dropped_gaps", lagged.droppedGaps()).end(endOfBatch);
        }

        @Override
        public void onText(String text, boolean endOfBatch) {
            print(text, endOfBatch);
        }
    }
}
