package io.tapeworks.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;

/** Compiles the Java examples of the README and of the book. */
final class DocumentationTest {
    private static final Pattern EXAMPLE = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

    @Test
    void examplesCompile() throws IOException {
        for (Path page : List.of(Path.of("README.md"), Path.of("../../docs/src/java.md"))) {
            Matcher examples = EXAMPLE.matcher(Files.readString(page));
            assertTrue(examples.find(), page + " has no example");
            do {
                compile(page, examples.group(1));
            } while (examples.find());
        }
    }

    private static void compile(Path page, String example) {
        String code = "import io.tapeworks.client.dbn.*; import io.tapeworks.client.live.*;"
                + "class Example { void run() throws Exception {\n" + example + "} }";
        JavaFileObject source = new SimpleJavaFileObject(URI.create("string:///Example.java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                return code;
            }
        };
        StringWriter errors = new StringWriter();
        List<String> options = List.of("-proc:none", "-classpath", "target/classes", "-d", "target/test-classes");
        var task = ToolProvider.getSystemJavaCompiler().getTask(errors, null, null, options, null, List.of(source));
        assertTrue(task.call(), () -> page + ": " + errors);
    }
}
