//! A server that makes a JSON document for each request and keeps the latest of each session
//! (docs/services/rust.md).

use axum::{extract::{Path, State}, routing::get, Json, Router};
use serde_json::{json, Value};
use std::{collections::HashMap, sync::{Arc, Mutex}};

type Sessions = Arc<Mutex<HashMap<u64, Value>>>;

async fn session(Path(number): Path<u64>, State(sessions): State<Sessions>) -> Json<Value> {
    let visits: Vec<Value> = (0..number % 60)
        .map(|n| json!({"page": format!("/item/{}", n * number), "seconds": n}))
        .collect();
    let session = json!({"id": number, "visits": visits});
    sessions.lock().unwrap().insert(number, session.clone());
    Json(session)
}

fn main() {
    let port = std::env::args().nth(1).expect("a port");
    tokio::runtime::Builder::new_multi_thread().enable_io().build().unwrap().block_on(async {
        let app = Router::new().route("/session/:number", get(session));
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
        axum::serve(listener, app.with_state(Sessions::default())).await.unwrap();
    });
}
