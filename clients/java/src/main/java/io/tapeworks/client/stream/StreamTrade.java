package io.tapeworks.client.stream;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** A trade. One object serves all records of its kind. */
public final class StreamTrade {
    private ByteBuffer buffer;
    private int symbolFrom;
    private int symbolLength;
    private long tsEvent;
    private long tsRecv;
    private long price;
    private long size;
    private int publisher;
    private int side;
    private int flags;

    StreamTrade() {}

    void read(ProtobufReader reader, ByteBuffer buffer) throws StreamException {
        this.buffer = buffer;
        symbolLength = 0;
        tsEvent = 0;
        tsRecv = 0;
        price = 0;
        size = 0;
        publisher = 0;
        side = 0;
        flags = 0;
        while (reader.next()) {
            if (reader.field() == 1 && reader.wireType() == ProtobufReader.LENGTH_DELIMITED) {
                symbolFrom = reader.from();
                symbolLength = reader.length();
            }
            if (reader.wireType() != ProtobufReader.VARINT) {
                continue;
            }
            switch (reader.field()) {
                case 2 -> tsEvent = reader.zigzag();
                case 3 -> tsRecv = reader.zigzag();
                case 4 -> price = reader.zigzag();
                case 5 -> size = reader.number();
                case 6 -> publisher = (int) reader.number();
                case 7 -> side = (int) reader.number();
                case 8 -> flags = (int) reader.number();
                default -> { }
            }
        }
    }

    /** The instrument, as a new text. */
    public String symbol() {
        byte[] bytes = new byte[symbolLength];
        buffer.get(symbolFrom, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Bytes of the instrument's name, in UTF-8. */
    public int symbolLength() {
        return symbolLength;
    }

    /** A byte of the instrument's name: what a table of a user's own is looked up by without a new text. */
    public byte symbolByte(int at) {
        return buffer.get(symbolFrom + java.util.Objects.checkIndex(at, symbolLength));
    }

    /** Whether the instrument's name has these bytes. */
    public boolean isSymbol(byte[] name) {
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

    /** The venue's time, in ns since the epoch, UTC. */
    public long tsEvent() {
        return tsEvent;
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return tsRecv;
    }

    /** The price, in 1e-9 of the currency. */
    public long price() {
        return price;
    }

    /** Shares. */
    public long size() {
        return size;
    }

    /** The feed. */
    public int publisher() {
        return publisher;
    }

    /** The aggressor's side: 0 none, 1 bid, 2 ask. */
    public int side() {
        return side;
    }

    /** The flags of DBN. */
    public int flags() {
        return flags;
    }
}
