//! A graph as a drawing: Mermaid for documents, SVG for everybody. The same graph gives the same text.

use std::fmt::Write as _;

use super::{Edge, EdgeKind, Graph};

const BOX_WIDTH: usize = 210;
const BOX_HEIGHT: usize = 56;
const COLUMN_GAP: usize = 130;
const ROW_GAP: usize = 34;
const MARGIN: usize = 24;
/// Letters of a label that fit into a box.
const LABEL_LETTERS: usize = 32;

/// What is written beside an edge: the port, if there are several, and what it is made of.
fn edge_text(graph: &Graph, edge: &Edge) -> String {
    let ports = graph.nodes[edge.from].ports;
    let port = ports.get(edge.port).filter(|_| ports.len() > 1).map(|port| port.name);
    let kind = match edge.kind {
        EdgeKind::Inline => None,
        kind => Some(format!("{} {}", kind.name(), edge.capacity)),
    };
    [port.map(str::to_owned), kind].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

/// The graph as a Mermaid flowchart: stages of one thread in one frame.
pub fn mermaid(graph: &Graph) -> String {
    // Mermaid has entities of its own spelling, and a quote would end a label.
    let safe = |text: &str| {
        text.replace('#', "#35;").replace('"', "#quot;").replace('<', "#lt;").replace('>', "#gt;")
    };
    let mut out = String::from("flowchart LR\n");
    let threads = graph.threads();
    for thread in 0..threads.iter().max().map_or(0, |last| last + 1) {
        let _infallible = writeln!(out, "    subgraph t{thread} [\"thread {}\"]", thread + 1);
        for (index, node) in graph.nodes.iter().enumerate().filter(|(index, _)| threads[*index] == thread) {
            let (open, close) = match (node.is_reader(), node.is_writer()) {
                (true, _) => ("([", "])"),
                (_, true) => ("[/", "/]"),
                _ => ("[", "]"),
            };
            let label = [&node.name, node.kind, &node.label]
                .into_iter()
                .filter(|line| !line.is_empty())
                .map(safe)
                .collect::<Vec<_>>()
                .join("<br>");
            let _infallible = writeln!(out, "        s{index}{open}\"{label}\"{close}");
        }
        out.push_str("    end\n");
    }
    for edge in &graph.edges {
        let arrow = if edge.kind == EdgeKind::Inline { "-->" } else { "==>" };
        let text = edge_text(graph, edge);
        let label = if text.is_empty() { text } else { format!("|\"{}\"|", safe(&text)) };
        let _infallible = writeln!(out, "    s{} {arrow}{label} s{}", edge.from, edge.to);
    }
    out
}

/// The column of each stage: one more than that of the furthest stage before it.
fn columns(graph: &Graph) -> Vec<usize> {
    let mut columns = vec![0; graph.nodes.len()];
    for node in graph.order() {
        for edge in graph.edges.iter().filter(|edge| edge.from == node) {
            columns[edge.to] = columns[edge.to].max(columns[node] + 1);
        }
    }
    columns
}

/// The graph as an SVG drawing, from left to right; the colour of a box is its thread's.
pub fn svg(graph: &Graph) -> String {
    let safe = |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
    };
    let columns = columns(graph);
    let mut rows_of = vec![0; columns.iter().max().map_or(0, |last| last + 1)];
    let places: Vec<(usize, usize)> = columns
        .iter()
        .map(|column| {
            let row = rows_of[*column];
            rows_of[*column] += 1;
            (MARGIN + column * (BOX_WIDTH + COLUMN_GAP), MARGIN + row * (BOX_HEIGHT + ROW_GAP))
        })
        .collect();
    let width =
        2 * MARGIN + rows_of.len() * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP.min(rows_of.len() * COLUMN_GAP);
    let height = 2 * MARGIN + rows_of.iter().max().copied().unwrap_or(0) * (BOX_HEIGHT + ROW_GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#444\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for edge in &graph.edges {
        let ((from_x, from_y), (to_x, to_y)) = (places[edge.from], places[edge.to]);
        let (x1, x2, y2) = (from_x + BOX_WIDTH, to_x, to_y + BOX_HEIGHT / 2);
        // Ports leave below each other.
        let ports = graph.nodes[edge.from].ports.len();
        let y1 = from_y + BOX_HEIGHT * (edge.port + 1) / (ports + 1);
        let bend = COLUMN_GAP / 2;
        let stroke = if edge.kind == EdgeKind::Inline { 1 } else { 3 };
        let _infallible = writeln!(
            out,
            "<path d=\"M{x1},{y1} C{},{y1} {},{y2} {x2},{y2}\" fill=\"none\" stroke=\"#444\" stroke-width=\"{stroke}\" \
             marker-end=\"url(#tip)\"/>",
            x1 + bend,
            x2.saturating_sub(bend)
        );
        let text = edge_text(graph, edge);
        if !text.is_empty() {
            // Near the end: there an edge is alone, while several may leave one port.
            let _infallible = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"10\" fill=\"#444\">{}</text>",
                x2.saturating_sub(12),
                (y1 + 3 * y2) / 4 - 4,
                safe(&text)
            );
        }
    }
    for (index, (node, thread)) in graph.nodes.iter().zip(graph.threads()).enumerate() {
        let (x, y) = places[index];
        let hue = thread * 67 % 360;
        let _infallible = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\" fill=\"hsl({hue},60%,93%)\" \
             stroke=\"hsl({hue},45%,45%)\"/>"
        );
        for (line, (text, style)) in [
            (&*node.name, "font-weight=\"bold\""),
            (node.kind, "fill=\"#333\""),
            (&*node.label, "fill=\"#666\""),
        ]
        .into_iter()
        .enumerate()
        {
            let _infallible = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" {style}>{}</text>",
                x + 10,
                y + 17 + 15 * line,
                safe(&cut(text, LABEL_LETTERS))
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{edge, filter, reader, writer};
    use super::*;

    fn graph() -> Graph {
        let mut graph = Graph {
            nodes: vec![reader("in"), filter("a \"b\" <c>"), writer("x"), writer("y")],
            edges: vec![
                edge(0, 0, 1, EdgeKind::Inline),
                edge(1, 0, 2, EdgeKind::Spsc),
                edge(1, 1, 3, EdgeKind::Inline),
            ],
            batch: 1,
        };
        graph.nodes[1].label = "udp & more than fits into the box that it has".into();
        graph
    }

    #[test]
    fn mermaid_shows_threads_ports_and_rings() {
        let expected = "\
flowchart LR
    subgraph t0 [\"thread 1\"]
        s0([\"in<br>stage\"])
        s1[\"a #quot;b#quot; #lt;c#gt;<br>stage<br>udp & more than fits into the box that it has\"]
        s3[/\"y<br>stage\"/]
    end
    subgraph t1 [\"thread 2\"]
        s2[/\"x<br>stage\"/]
    end
    s0 --> s1
    s1 ==>|\"pass, spsc 8\"| s2
    s1 -->|\"reject\"| s3
";
        assert_eq!(mermaid(&graph()), expected);
    }

    #[test]
    fn svg_is_the_same_each_time_and_escapes_names() {
        let drawn = svg(&graph());
        assert_eq!(drawn, svg(&graph()));
        assert!(drawn.contains("a &quot;b&quot; &lt;c&gt;"), "{drawn}");
        assert!(drawn.contains("udp &amp; more than fits into t"), "{drawn}");
        assert_eq!(drawn.matches("<path d=\"M").count(), 3 + 1, "three edges and the tip");
        assert!(svg(&Graph::default()).ends_with("</svg>\n"));
    }
}
