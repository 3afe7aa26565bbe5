package io.tapeworks.client;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.util.JsonFormat;
import io.tapeworks.v1.Record;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;

/** Prints records of a plant's stream, one on each line in protobuf's JSON mapping, and counts them. */
public final class Client implements WebSocket.Listener {
    private static final String USAGE =
            "usage: Client URL COUNT, such as ws://127.0.0.1:8080/stream?encoding=protobuf 100";

    private final JsonFormat.Printer printer = JsonFormat.printer()
            .omittingInsignificantWhitespace()
            .preservingProtoFieldNames()
            .alwaysPrintFieldsWithNoPresence();
    private final JsonFormat.Parser parser = JsonFormat.parser();
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<Record.KindCase, Long> counts = new EnumMap<>(Record.KindCase.class);
    private final CompletableFuture<Void> done = new CompletableFuture<>();
    private final StringBuilder text = new StringBuilder();
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private long left;

    private Client(long count) {
        left = count;
    }

    /** Exits with 0 after the requested number of records, 1 when the stream ends before, 2 for wrong arguments. */
    public static void main(String[] arguments) {
        URI address;
        long count;
        try {
            address = URI.create(arguments[0]);
            count = Long.parseLong(arguments[1]);
        } catch (ArrayIndexOutOfBoundsException | IllegalArgumentException wrong) {
            System.err.println(USAGE);
            System.exit(2);
            return;
        }
        Client client = new Client(count);
        try {
            WebSocket.Builder builder = HttpClient.newHttpClient()
                    .newWebSocketBuilder()
                    .connectTimeout(Duration.ofSeconds(10));
            String token = System.getenv("TAPEWORKS_TOKEN");
            if (token != null) {
                builder.header("Authorization", "Bearer " + token);
            }
            WebSocket socket = builder.buildAsync(address, client).join();
            client.done.join();
            socket.abort();
        } catch (CompletionException failed) {
            client.out.flush();
            System.err.println("error: " + failed.getCause().getMessage());
            System.exit(1);
        }
        client.out.flush();
        System.err.println(client.counts);
        System.exit(0);
    }

    @Override
    public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
        text.append(data);
        if (last) {
            try {
                Record.Builder record = Record.newBuilder();
                parser.merge(text.toString(), record);
                take(record.build());
            } catch (InvalidProtocolBufferException wrong) {
                done.completeExceptionally(wrong);
            }
            text.setLength(0);
        }
        socket.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onBinary(WebSocket socket, ByteBuffer data, boolean last) {
        byte[] part = new byte[data.remaining()];
        data.get(part);
        bytes.writeBytes(part);
        if (last) {
            try {
                take(Record.parseFrom(bytes.toByteArray()));
            } catch (InvalidProtocolBufferException wrong) {
                done.completeExceptionally(wrong);
            }
            bytes.reset();
        }
        socket.request(1);
        return null;
    }

    @Override
    public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
        done.completeExceptionally(new IllegalStateException("the stream was closed: " + code + " " + reason));
        return null;
    }

    @Override
    public void onError(WebSocket socket, Throwable error) {
        done.completeExceptionally(error);
    }

    private void take(Record record) throws InvalidProtocolBufferException {
        if (done.isDone()) {
            return;
        }
        out.println(printer.print(record));
        counts.merge(record.getKindCase(), 1L, Long::sum);
        left -= 1;
        if (left <= 0) {
            done.complete(null);
        }
    }
}
