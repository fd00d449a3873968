//! Pages of lists, and how long they stay true.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("page").await;
}
