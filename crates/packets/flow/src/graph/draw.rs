//! Draws a graph as Mermaid for documents, or as SVG. Output is reproducible.

use std::fmt::Write as _;

use super::{Edge, EdgeKind, Graph};

const BOX_WIDTH: usize = 210;
/// The height of a box with few edges. A box with many grows by `JOIN_GAP` per edge.
const BOX_HEIGHT: usize = 56;
const JOIN_GAP: usize = 18;
/// The width in which an edge bends to the height of its end. Edges are level after the bend, with their labels above them.
const BEND: usize = 80;
const ROW_GAP: usize = 34;
/// The height reserved for an edge that passes a column.
const LANE_HEIGHT: usize = 8;
/// The tip of an arrow. The line ends inside the tip, so that a thick line does not show beside the point.
const TIP: usize = 10;
const TIP_OVERLAP: usize = 2;
/// An estimate. A wider label has a halo.
const LABEL_LETTER_WIDTH: usize = 6;
const MARGIN: usize = 24;
/// The most letters of a label that fit in a box.
const LABEL_LETTERS: usize = 32;

/// Returns the label of an edge: its kind, and its port if there are several.
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

/// Draws the graph as a Mermaid flowchart, with a frame around the stages of each thread.
pub fn mermaid(graph: &Graph) -> String {
    // Mermaid escapes characters differently, and a quote would end a label.
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

/// Returns the column of each stage: one past its furthest predecessor.
fn columns(graph: &Graph) -> Vec<usize> {
    let mut columns = vec![0; graph.nodes.len()];
    for node in graph.order() {
        for edge in graph.edges.iter().filter(|edge| edge.from == node) {
            columns[edge.to] = columns[edge.to].max(columns[node] + 1);
        }
    }
    columns
}

/// Something that takes up room in a column.
#[derive(Clone, Copy)]
enum Item {
    Stage(usize),
    /// An edge that passes the column.
    Lane(usize),
}

/// The positions of everything. Edges lead to the right. An edge over several columns has a lane through each column it passes,
/// so that it crosses no box.
struct Layout {
    columns: Vec<usize>,
    /// The left side of each column.
    lefts: Vec<usize>,
    tops: Vec<usize>,
    heights: Vec<usize>,
    /// The heights at which each edge passes columns.
    lanes: Vec<Vec<usize>>,
    /// The height at which each edge ends.
    ends: Vec<usize>,
}

impl Layout {
    fn new(graph: &Graph) -> Self {
        let columns = columns(graph);
        let count = columns.iter().max().map_or(0, |last| last + 1);
        let heights = graph.nodes.iter().enumerate().map(|(node, stage)| {
            let joins = graph.edges.iter().filter(|edge| edge.to == node).count().max(stage.ports.len());
            BOX_HEIGHT.max((joins + 1) * JOIN_GAP)
        });
        let mut layout = Self {
            lefts: lefts(graph, &columns, count),
            tops: vec![MARGIN; graph.nodes.len()],
            heights: heights.collect(),
            lanes: vec![Vec::new(); graph.edges.len()],
            ends: vec![0; graph.edges.len()],
            columns,
        };
        for column in 0..count {
            layout.fill(graph, column);
        }
        layout.centre_readers(graph);
        layout.spread_ends(graph);
        layout
    }

    /// Stacks the stages and lanes of a column, each as near as possible to the sources of its edges.
    fn fill(&mut self, graph: &Graph, column: usize) {
        let mut items = Vec::new();
        for node in (0..graph.nodes.len()).filter(|node| self.columns[*node] == column) {
            let sources: Vec<usize> = edges_to(graph, node).map(|edge| self.source(graph, edge)).collect();
            items.push((mean(&sources).unwrap_or(0), Item::Stage(node)));
        }
        for (number, edge) in graph.edges.iter().enumerate() {
            if self.columns[edge.from] < column && column < self.columns[edge.to] {
                items.push((self.source(graph, number), Item::Lane(number)));
            }
        }
        // Stable sort: items from the same height keep the order of the file.
        items.sort_by_key(|(height, _)| *height);
        let mut free = MARGIN;
        for (wanted, item) in items {
            let height = match item {
                Item::Stage(node) => self.heights[node],
                Item::Lane(_) => LANE_HEIGHT,
            };
            let top = free.max(wanted.saturating_sub(height / 2));
            match item {
                Item::Stage(node) => self.tops[node] = top,
                Item::Lane(edge) => self.lanes[edge].push(top + height / 2),
            }
            free = top + height + ROW_GAP;
        }
    }

    /// Moves boxes without incoming edges down to the middle of their targets, as far as there is room.
    fn centre_readers(&mut self, graph: &Graph) {
        let mut limit = usize::MAX;
        for node in (0..graph.nodes.len()).rev().filter(|node| self.columns[*node] == 0) {
            let edges = graph.edges.iter().enumerate().filter(|(_, edge)| edge.from == node);
            let targets: Vec<usize> = edges
                .map(|(number, edge)| {
                    let middle = self.tops[edge.to] + self.heights[edge.to] / 2;
                    self.lanes[number].first().copied().unwrap_or(middle)
                })
                .collect();
            let wanted = mean(&targets).unwrap_or(0).saturating_sub(self.heights[node] / 2);
            let lowest = limit.saturating_sub(self.heights[node] + ROW_GAP);
            self.tops[node] = self.tops[node].max(wanted.min(lowest));
            limit = self.tops[node];
        }
    }

    /// Spreads the ends of the edges into one stage, in the order of their sources.
    fn spread_ends(&mut self, graph: &Graph) {
        for node in 0..graph.nodes.len() {
            let mut edges: Vec<usize> = edges_to(graph, node).collect();
            edges.sort_by_key(|edge| self.source(graph, *edge));
            for (place, edge) in edges.iter().enumerate() {
                self.ends[*edge] = self.tops[node] + self.heights[node] * (place + 1) / (edges.len() + 1);
            }
        }
    }

    /// Returns the height at which an edge leaves its stage, which depends on its port.
    fn start(&self, graph: &Graph, edge: &Edge) -> usize {
        let ports = graph.nodes[edge.from].ports.len();
        self.tops[edge.from] + self.heights[edge.from] * (edge.port + 1) / (ports + 1)
    }

    /// Returns the height at which an edge reaches the next column.
    fn source(&self, graph: &Graph, edge: usize) -> usize {
        self.lanes[edge].last().copied().unwrap_or_else(|| self.start(graph, &graph.edges[edge]))
    }

    /// Returns an edge as SVG path data.
    fn path(&self, graph: &Graph, number: usize) -> String {
        let edge = &graph.edges[number];
        let mut x = self.lefts[self.columns[edge.from]] + BOX_WIDTH;
        let mut y = self.start(graph, edge);
        let mut path = format!("M{x},{y}");
        let columns = self.columns[edge.from] + 1..self.columns[edge.to];
        let passed =
            columns.zip(&self.lanes[number]).map(|(column, lane)| (*lane, self.lefts[column] + BOX_WIDTH));
        let end = self.lefts[self.columns[edge.to]].saturating_sub(TIP - TIP_OVERLAP);
        for (next, level_to) in passed.chain([(self.ends[number], end)]) {
            let _infallible = write!(
                path,
                " C{},{y} {},{next} {},{next} H{level_to}",
                x + BEND / 2,
                x + BEND / 2,
                x + BEND
            );
            (x, y) = (level_to, next);
        }
        path
    }
}

fn edges_to(graph: &Graph, node: usize) -> impl Iterator<Item = usize> {
    graph.edges.iter().enumerate().filter(move |(_, edge)| edge.to == node).map(|(number, _)| number)
}

fn mean(numbers: &[usize]) -> Option<usize> {
    numbers.iter().sum::<usize>().checked_div(numbers.len())
}

/// Returns the left side of each column, with room before it for bends and the widest label.
fn lefts(graph: &Graph, columns: &[usize], count: usize) -> Vec<usize> {
    let mut left = MARGIN;
    (0..count)
        .map(|column| {
            if column > 0 {
                let edges = graph.edges.iter().filter(|edge| columns[edge.to] == column);
                let letters = edges.map(|edge| edge_text(graph, edge).chars().count()).max().unwrap_or(0);
                left += BOX_WIDTH + BEND + letters * LABEL_LETTER_WIDTH + 2 * TIP;
            }
            left
        })
        .collect()
}

/// Draws the graph as SVG, from left to right. The color of a box identifies its thread.
pub fn svg(graph: &Graph) -> String {
    let safe = |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
    };
    let layout = Layout::new(graph);
    let width = layout.lefts.last().map_or(MARGIN, |left| left + BOX_WIDTH) + MARGIN;
    let bottoms = layout.tops.iter().zip(&layout.heights).map(|(top, height)| top + height);
    let lowest = bottoms.chain(layout.lanes.iter().flatten().copied()).max();
    let height = lowest.unwrap_or(MARGIN) + MARGIN;
    // The tip has the same size on thick and thin lines.
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"tip\" markerUnits=\"userSpaceOnUse\" viewBox=\"0 0 {TIP} {TIP}\" refX=\"{TIP_OVERLAP}\" \
         refY=\"{}\" markerWidth=\"{TIP}\" markerHeight=\"{TIP}\" orient=\"auto\">\
         <path d=\"M0,0 L{TIP},{} L0,{TIP} z\" fill=\"#444\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        TIP / 2,
        TIP / 2
    );
    for (number, edge) in graph.edges.iter().enumerate() {
        let stroke = if edge.kind == EdgeKind::Inline { 1 } else { 3 };
        let _infallible = writeln!(
            out,
            "<path d=\"{}\" fill=\"none\" stroke=\"#444\" stroke-width=\"{stroke}\" marker-end=\"url(#tip)\"/>",
            layout.path(graph, number)
        );
    }
    // Draw labels after all edges, so that no edge covers a label.
    for (number, edge) in graph.edges.iter().enumerate() {
        let text = edge_text(graph, edge);
        if !text.is_empty() {
            // Near the end, where the edge is alone; several edges may leave one port.
            let _infallible = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"10\" fill=\"#444\" stroke=\"white\" \
                 stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
                layout.lefts[layout.columns[edge.to]].saturating_sub(TIP + 4),
                layout.ends[number].saturating_sub(5),
                safe(&text)
            );
        }
    }
    for (index, (node, thread)) in graph.nodes.iter().zip(graph.threads()).enumerate() {
        let (x, y, height) = (layout.lefts[layout.columns[index]], layout.tops[index], layout.heights[index]);
        let hue = thread * 67 % 360;
        let _infallible = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"hsl({hue},60%,93%)\" \
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

    /// Returns a graph with edges that pass columns, edges that merge, and one port with many edges.
    fn tangle() -> Graph {
        Graph {
            nodes: vec![
                reader("in"),
                filter("a"),
                filter("b"),
                filter("c"),
                filter("d"),
                writer("x"),
                reader("r"),
            ],
            edges: vec![
                edge(0, 0, 1, EdgeKind::Inline),
                edge(1, 1, 2, EdgeKind::Inline),
                edge(1, 0, 5, EdgeKind::Spsc),
                edge(2, 0, 3, EdgeKind::Inline),
                edge(2, 1, 4, EdgeKind::Disruptor),
                edge(2, 1, 5, EdgeKind::Disruptor),
                edge(3, 0, 5, EdgeKind::Spsc),
                edge(4, 0, 5, EdgeKind::Spsc),
                edge(6, 0, 5, EdgeKind::Spsc),
            ],
            batch: 1,
        }
    }

    #[test]
    fn no_edge_meets_a_box_or_another_edge_in_a_column() {
        let graph = tangle();
        let layout = Layout::new(&graph);
        for column in 0..layout.lefts.len() {
            let mut taken: Vec<(usize, usize)> = (0..graph.nodes.len())
                .filter(|node| layout.columns[*node] == column)
                .map(|node| (layout.tops[node], layout.tops[node] + layout.heights[node]))
                .collect();
            for (edge, lanes) in graph.edges.iter().zip(&layout.lanes) {
                let first = layout.columns[edge.from] + 1;
                assert_eq!(lanes.len(), layout.columns[edge.to] - first, "a lane in each column between");
                taken.extend(
                    column.checked_sub(first).and_then(|at| lanes.get(at)).map(|lane| (*lane, *lane)),
                );
            }
            taken.sort_unstable();
            assert!(taken.windows(2).all(|pair| pair[0].1 + ROW_GAP <= pair[1].0), "{column}: {taken:?}");
        }
    }

    #[test]
    fn edges_that_merge_end_below_each_other_with_room_for_labels() {
        let graph = tangle();
        let layout = Layout::new(&graph);
        let mut ends: Vec<usize> = edges_to(&graph, 5).map(|edge| layout.ends[edge]).collect();
        ends.sort_unstable();
        assert_eq!(ends.len(), 5);
        assert!(ends.windows(2).all(|pair| pair[0] + JOIN_GAP <= pair[1]), "{ends:?}");
        assert!(layout.tops[5] < ends[0] && ends[4] < layout.tops[5] + layout.heights[5], "{ends:?}");
    }

    #[test]
    fn a_faulty_graph_is_drawn_too() {
        let mut graph = graph();
        graph.edges.push(edge(1, 0, 1, EdgeKind::Inline));
        graph.edges.push(edge(2, 0, 0, EdgeKind::Inline));
        assert!(svg(&graph).ends_with("</svg>\n"));
    }

    #[test]
    fn the_tip_does_not_grow_with_the_line_and_labels_have_a_halo() {
        let drawn = svg(&tangle());
        assert!(drawn.contains("markerUnits=\"userSpaceOnUse\""), "{drawn}");
        let last_path = drawn.rfind("<path").unwrap_or_default();
        let first_halo = drawn.find("paint-order=\"stroke\"").unwrap_or_default();
        assert!(last_path < first_halo, "labels lie above edges");
    }
}
