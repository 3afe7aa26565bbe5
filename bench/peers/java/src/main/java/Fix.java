import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import quickfix.DataDictionary;
import quickfix.Message;
import quickfix.field.MsgSeqNum;

/**
 * Reads FIX messages with QuickFIX/J: {@code Fix FILE PASSES plain|validated} prints nanoseconds per message, and {@code Fix
 * dictionary FILE} writes the dictionary of FIX 4.4. A file has a message a line. Passes before the counted ones warm the compiler up;
 * of those the fastest of each hundred messages counts.
 */
public final class Fix {
    private static final int WARM_UP = 12;

    /** Messages that are timed as one. */
    private static final int SLICE = 100;

    private static InputStream dictionary() {
        return Fix.class.getClassLoader().getResourceAsStream("FIX44.xml");
    }

    private static long pass(List<String> messages, DataDictionary dictionary, boolean validated) throws Exception {
        long length = 0;
        for (String text : messages) {
            Message message = new Message();
            message.fromString(text, dictionary, validated);
            if (validated) {
                dictionary.validate(message);
            }
            length += message.getHeader().getInt(MsgSeqNum.FIELD);
        }
        return length;
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("dictionary")) {
            try (InputStream text = dictionary()) {
                Files.write(Path.of(words[1]), text.readAllBytes());
            }
            System.out.println(0);
            return;
        }
        List<String> messages = Files.readAllLines(Path.of(words[0]), StandardCharsets.ISO_8859_1);
        int passes = Integer.parseInt(words[1]);
        boolean validated = words[2].equals("validated");
        DataDictionary dictionary = validated ? new DataDictionary(dictionary()) : null;
        int slices = messages.size() / SLICE;
        long[] times = new long[slices];
        Arrays.fill(times, Long.MAX_VALUE);
        for (int turn = -WARM_UP; turn < passes; turn++) {
            for (int slice = 0; slice < slices; slice++) {
                List<String> part = messages.subList(slice * SLICE, (slice + 1) * SLICE);
                long start = System.nanoTime();
                long length = pass(part, dictionary, validated);
                long time = System.nanoTime() - start;
                if (length < SLICE) {
                    throw new IllegalStateException("messages without a sequence number");
                }
                if (turn >= 0) {
                    times[slice] = Math.min(times[slice], time);
                }
            }
        }
        System.out.println(Arrays.stream(times).sum() / (double) (slices * SLICE));
    }
}
