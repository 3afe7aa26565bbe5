package io.tapeworks.client.dbn;

import java.io.IOException;

/** Bytes that are no DBN. The message says at which offset of the stream, and what is wrong. */
public final class DbnException extends IOException {
    private static final long serialVersionUID = 1L;

    DbnException(long offset, String what) {
        super("byte " + offset + " of the stream: " + what);
    }
}
