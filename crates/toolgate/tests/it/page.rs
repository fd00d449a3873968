//! Pages of lists, and how long they stay true.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::all("page").await;
}
