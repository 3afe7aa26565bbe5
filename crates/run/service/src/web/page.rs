//! The files of the page, embedded in the program.

use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "web"]
struct Files;

/// Returns the content type of a file, by its extension.
fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Returns the text of a file.
pub(super) fn text(path: &str) -> String {
    Files::get(path).map(|file| String::from_utf8_lossy(&file.data).into_owned()).unwrap_or_default()
}

/// Answers with a file. `index` is the site's only page. Browsers cache the file.
pub(super) fn file(index: &str, uri: &Uri, headers: &HeaderMap) -> Response {
    let path = match uri.path() {
        "/" => index,
        path => path.trim_start_matches('/'),
    };
    let Some(file) = Files::get(path).filter(|_| path == index || !path.ends_with(".html")) else {
        return (StatusCode::NOT_FOUND, "there is no such page here\n").into_response();
    };
    let tag = format!("\"{}\"", hex::encode(file.metadata.sha256_hash()));
    let has = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let about = [(header::CONTENT_TYPE, kind(path).to_owned()), (header::ETAG, tag)];
    if has { (StatusCode::NOT_MODIFIED, about).into_response() } else { (about, file.data).into_response() }
}
