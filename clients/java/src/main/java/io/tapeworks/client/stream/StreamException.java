package io.tapeworks.client.stream;

import java.io.IOException;

/** A stream that cannot begin or go on. */
public final class StreamException extends IOException {
    private static final long serialVersionUID = 1L;

    StreamException(String what) {
        super(what);
    }
}
