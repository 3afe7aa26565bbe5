package io.tapeworks.client.dbn;

/** A record of a type that this client does not know: its header. */
public final class UnknownRecord extends Record {
    @Override
    public int minimumLength() {
        return HEADER_LENGTH;
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "type", recordType());
    }
}
