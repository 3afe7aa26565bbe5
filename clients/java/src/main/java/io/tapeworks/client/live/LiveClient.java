package io.tapeworks.client.live;

import io.tapeworks.client.dbn.DbnDecoder;
import io.tapeworks.client.dbn.DbnException;
import io.tapeworks.client.dbn.ErrorMessage;
import io.tapeworks.client.dbn.Record;
import io.tapeworks.client.dbn.RecordHandler;
import io.tapeworks.client.net.Retries;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;

/**
 * A client of DBN live: of a plant ({@code tapeworks plant}), or of another server of the protocol.
 *
 * <p>If the first connection fails, {@link #run} throws immediately unless {@link LiveOptions.Builder#waitForServer} is set. If an
 * established session is lost, the client reconnects and requests a replay from the time of its last record. It drops the records that
 * it already delivered, so each record arrives once, as far as the server's history reaches. With several servers, such as the two
 * plants of a pair, the session resumes at the next one that serves; {@link RecordHandler#onReconnect} reports it. Mappings, system and
 * error messages are passed on unchanged.
 *
 * <p>A client belongs to one thread; any thread may {@link #close} it, or interrupt that thread. Once a session runs, the client
 * allocates nothing.
 *
 * <pre>{@code
 * LiveOptions options = LiveOptions.builder().servers("127.0.0.1:13000").key(key).schemas("mbo").build();
 * try (LiveClient client = new LiveClient(options)) {
 *     client.run(new RecordHandler() {
 *         public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
 *             ...
 *         }
 *     });
 * }
 * }</pre>
 *
 * <p>Source of the protocol: the public client libraries of Databento.
 */
public final class LiveClient implements AutoCloseable {
    private static final int BUFFER = 1 << 20;
    private static final int BUCKET = 5;
    private static final int AUTH_FAILED = 1;
    private static final int KEY_DEACTIVATED = 2;
    private static final int INVALID_SUBSCRIPTION = 5;
    private static final int REPLAY_AGED_OUT = 8;
    private static final int SYMBOLS_A_LINE = 500;
    /** Longest wait for an answer while another server is left to try. */
    private static final Duration TRY = Duration.ofSeconds(5);

    private final LiveOptions options;
    private final Resume resume = new Resume();
    private final Retries retries;
    private final DbnDecoder decoder = new DbnDecoder(this::takes);
    private final ByteBuffer buffer = ByteBuffer.allocate(BUFFER);
    private volatile Connection connection;
    private volatile boolean isClosed;
    /** The number of the session's server; without a session, that of the next one to try. */
    private int at;
    private boolean hasBegun;
    private long readAtNanos;
    private RecordHandler handler;
    /** The reason of a refusal that came as a record; null: none did. */
    private String refusal;
    /** Refusals since the last record. */
    private int refusals;
    /** Whether every server has refused a replay, so the session continues with the present. */
    private boolean skipsReplay;

    /** A session that is not connected yet: {@link #run} and {@link #poll} connect. */
    public LiveClient(LiveOptions options) {
        this.options = options;
        this.retries = new Retries(options.attempts, options.pause);
    }

    /** Records handed over so far. */
    public long records() {
        return decoder.records();
    }

    /** Attempts to reconnect so far. */
    public long reconnects() {
        return retries.count();
    }

    /** The server of the session, or without one the next to try: for the thread that uses the client. */
    public LiveOptions.Server server() {
        return options.server(at);
    }

    /**
     * Passes records to the handler until {@link #close}, or until the thread is interrupted.
     *
     * <p>An interrupt closes the connection; {@code run} returns with the thread's interrupt flag set. A later call resumes the session.
     *
     * @throws LiveException every server refused, the first connection failed, or no attempt to reconnect is left
     * @throws DbnException the server sends bytes that are not DBN, and there is no other server
     */
    public void run(RecordHandler handler) throws IOException {
        while (!isStopped()) {
            if (poll(handler) == 0 && options.waiting == LiveOptions.Waiting.BUSY) {
                Thread.onSpinWait();
            }
        }
        disconnect();
    }

    private boolean isStopped() {
        return isClosed || Thread.currentThread().isInterrupted();
    }

    /**
     * Runs one turn: connects if needed, waits for bytes (unless waiting is busy), and passes their records to the handler.
     *
     * @return the number of records; 0 if the client is closed or the thread is interrupted, which closes the connection
     * @throws LiveException as {@link #run}
     * @throws DbnException as {@link #run}
     */
    public int poll(RecordHandler handler) throws IOException {
        if (isStopped()) {
            disconnect();
            return 0;
        }
        Connection connection = this.connection;
        if (connection == null) {
            connection = connect(handler);
            if (connection == null) {
                return 0;
            }
            if (hasBegun) {
                handler.onReconnect(retries.count());
            }
            hasBegun = true;
        }
        try {
            int read = connection.read(buffer);
            if (read < 0 && refusal != null) {
                throw new LiveException(server() + ": " + refusal, LiveException.Reason.REFUSED);
            }
            if (read < 0) {
                throw new LiveException(server() + ": the server has ended the session", LiveException.Reason.ENDED);
            }
            if (read == 0) {
                checkSilence();
                return 0;
            }
            readAtNanos = System.nanoTime();
            buffer.flip();
            long before = resume.count();
            this.handler = handler;
            try {
                return decoder.decode(buffer, handler);
            } finally {
                buffer.compact();
                if (resume.count() != before) {
                    retries.succeeded();
                    refusals = 0;
                    skipsReplay = false;
                }
            }
        } catch (DbnException wrong) {
            if (options.servers.size() == 1) {
                disconnect();
                throw wrong;
            }
            lost(wrong);
        } catch (IOException broken) {
            if (isStopped()) {
                disconnect();
                return 0;
            }
            LiveException failure = failure(broken);
            refusals += failure.reason() == LiveException.Reason.REFUSED ? 1 : 0;
            if (refusals >= options.servers.size()) {
                boolean canSkip = options.whenRefused == LiveOptions.WhenRefused.CONTINUE && !skipsReplay;
                if (!canSkip || !resume.begin(options.schemas)) {
                    disconnect();
                    throw failure;
                }
                skipsReplay = true;
                refusals = 0;
            }
            lost(failure);
        }
        return 0;
    }

    /** Whether a record is new. Reports a hole before it, and notes a refusal. */
    private boolean takes(Record record) {
        boolean isNew = resume.takes(record);
        long from = resume.takeMissingFrom();
        if (from != Resume.NONE) {
            handler.onMissing(record.recordType(), from, record.indexTime());
        }
        if (record instanceof ErrorMessage error && isRefusal(error.code())) {
            refusal = error.err();
        }
        return isNew;
    }

    /** DBN's codes of a failed authentication, a deactivated key, an invalid subscription and a replay that is no longer kept. */
    private static boolean isRefusal(int code) {
        return code == AUTH_FAILED || code == KEY_DEACTIVATED || code == INVALID_SUBSCRIPTION || code == REPLAY_AGED_OUT;
    }

    private void checkSilence() throws LiveException {
        if (System.nanoTime() - readAtNanos > options.silenceTimeout.toNanos()) {
            throw new LiveException(server() + ": the server is silent, without a heartbeat", LiveException.Reason.BROKEN);
        }
    }

    /** Ends the session and pauses. The next turn reconnects, beginning with the next server. */
    private <E extends IOException> void lost(E failure) throws E {
        disconnect();
        if (!isStopped()) {
            retries.rest(failure, () -> isClosed);
            at = (at + 1) % options.servers.size();
        }
    }

    private LiveException failure(IOException broken) {
        return broken instanceof LiveException said ? said : new LiveException(server().toString(), broken);
    }

    /** Connects to the first server that serves. Null: none does now, or the client was stopped. */
    private Connection connect(RecordHandler handler) throws LiveException {
        LiveException refused = null;
        LiveException away = null;
        for (int tried = 0; tried < options.servers.size() && !isStopped(); tried++) {
            try {
                return open();
            } catch (IOException broken) {
                disconnect();
                LiveException failure = failure(broken);
                if (failure.reason() != LiveException.Reason.REFUSED) {
                    away = together(away, failure);
                } else {
                    refused = together(refused, failure);
                }
            } catch (RuntimeException wrong) {
                // Of the factory of TLS: nobody else closes the connection then.
                disconnect();
                throw wrong;
            }
            at = (at + 1) % options.servers.size();
        }
        if (isStopped()) {
            return null;
        }
        if (away == null) {
            throw refused;
        }
        // A refusal explains more than a server that is away.
        LiveException failure = together(refused, away);
        if (!hasBegun) {
            if (!options.waitForServer) {
                throw failure;
            }
            handler.onConnectFailed(failure);
        }
        lost(failure);
        return null;
    }

    private static LiveException together(LiveException first, LiveException second) {
        return first == null ? second : new LiveException(first, second);
    }

    /** Connects to a server. Null: the client was closed. */
    private Connection open() throws IOException {
        Connection made = new Connection();
        connection = made;
        // What closes it from now on finds it; what did before is seen here.
        if (isClosed) {
            disconnect();
            return null;
        }
        begin(made);
        return made;
    }

    private void begin(Connection made) throws IOException {
        boolean isShort = options.servers.size() > 1 && options.answerTimeout.compareTo(TRY) > 0;
        made.open(options, server(), isShort ? TRY : options.answerTimeout);
        decoder.restart();
        refusal = null;
        buffer.clear();
        authenticate(made);
        boolean isAnew = resume.begin(options.schemas);
        if (isAnew && skipsReplay) {
            resume.continueFromNow();
        }
        boolean hasSnapshot = options.snapshot && !isAnew;
        resume.connected(hasSnapshot);
        made.send(subscriptions(isAnew, hasSnapshot) + "start_session\n");
        made.begin(options);
        readAtNanos = System.nanoTime();
    }

    private void authenticate(Connection made) throws IOException {
        String greeting = made.line();
        if ("0".equals(value(greeting, "success"))) {
            throw refusal(greeting);
        }
        String challenge = made.line();
        String cram = value(challenge, "cram");
        if (!greeting.startsWith("lsg_version=") || cram == null) {
            throw new LiveException(server() + ": no live server: '" + greeting + "'", LiveException.Reason.REFUSED);
        }
        String key = options.key;
        String request = "auth=" + answer(cram, key) + "-" + key.substring(key.length() - BUCKET) + "|dataset=" + options.dataset
                + "|encoding=dbn|compression=none|ts_out=" + (options.tsOut ? 1 : 0) + "|client=tapeworks-java";
        if (options.slowReader != null) {
            request += "|slow_reader_behavior=" + options.slowReader;
        }
        made.send(request + "\n");
        String said = made.line();
        if (!"1".equals(value(said, "success"))) {
            throw refusal(said);
        }
    }

    /** A server that has too many connections may have room later: it may still count the one that broke. */
    private LiveException refusal(String said) {
        String error = value(said, "error");
        String why = error == null ? said : error;
        boolean isBusy = why.contains("connections");
        return new LiveException(server() + ": " + why, isBusy ? LiveException.Reason.BROKEN : LiveException.Reason.REFUSED);
    }

    private String subscriptions(boolean isAnew, boolean snapshot) {
        StringBuilder lines = new StringBuilder();
        List<String> symbols = options.symbols.isEmpty() ? List.of("ALL_SYMBOLS") : options.symbols;
        for (String schema : options.schemas) {
            long start = isAnew ? skipsReplay ? Resume.NONE : resume.start(schema) : options.start;
            for (int at = 0; at < symbols.size(); at += SYMBOLS_A_LINE) {
                int end = Math.min(symbols.size(), at + SYMBOLS_A_LINE);
                lines.append("schema=").append(schema).append("|stype_in=raw_symbol|symbols=")
                        .append(String.join(",", symbols.subList(at, end)))
                        .append("|snapshot=").append(snapshot ? 1 : 0)
                        .append("|is_last=").append(end == symbols.size() ? 1 : 0);
                if (start >= 0) {
                    lines.append("|start=").append(start);
                }
                lines.append('\n');
            }
        }
        return lines.toString();
    }

    /** The value of a key in a line of {@code key=value|key=value}; null: it is not there. */
    static String value(String line, String key) {
        for (String pair : line.split("\\|")) {
            if (pair.startsWith(key + "=")) {
                return pair.substring(key.length() + 1);
            }
        }
        return null;
    }

    /** The answer to a challenge: SHA-256 of challenge and key, in hexadecimal digits. */
    static String answer(String challenge, String key) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest((challenge + "|" + key).getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(hash);
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError("every Java has SHA-256", impossible);
        }
    }

    private void disconnect() {
        Connection ended = connection;
        connection = null;
        if (ended != null) {
            try {
                ended.close();
            } catch (IOException ignored) {
                // It is given up in any case.
            }
        }
    }

    /** Ends the session. A turn that waits in another thread returns immediately. */
    @Override
    public void close() {
        isClosed = true;
        disconnect();
    }
}
