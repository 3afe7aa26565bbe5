package io.tapeworks.client.stream;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/** What records of an instrument have in common: its name, where it lies in the buffer. */
public abstract class StreamInstrument {
    private static final int SYMBOL = 1;

    private ByteBuffer buffer;
    private int symbolFrom;
    private int symbolLength;

    StreamInstrument() {}

    final void read(ProtobufReader reader, ByteBuffer buffer) throws StreamException {
        this.buffer = buffer;
        symbolLength = 0;
        clear();
        while (reader.next()) {
            if (reader.wireType() == ProtobufReader.VARINT) {
                take(reader);
            } else if (reader.field() == SYMBOL && reader.wireType() == ProtobufReader.LENGTH_DELIMITED) {
                symbolFrom = reader.from();
                symbolLength = reader.length();
            }
        }
    }

    /** All fields are those of a record that has none. */
    abstract void clear();

    /** Takes a field that is a number. */
    abstract void take(ProtobufReader reader);

    /** The instrument, as a new text. */
    public final String symbol() {
        byte[] bytes = new byte[symbolLength];
        buffer.get(symbolFrom, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Bytes of the instrument's name, in UTF-8. */
    public final int symbolLength() {
        return symbolLength;
    }

    /** A byte of the instrument's name: what a table of a user's own is looked up by without a new text. */
    public final byte symbolByte(int at) {
        return buffer.get(symbolFrom + Objects.checkIndex(at, symbolLength));
    }

    /** Whether the instrument's name has these bytes. */
    public final boolean isSymbol(byte[] name) {
        if (name.length != symbolLength) {
            return false;
        }
        for (int at = 0; at < name.length; at++) {
            if (buffer.get(symbolFrom + at) != name[at]) {
                return false;
            }
        }
        return true;
    }
}
