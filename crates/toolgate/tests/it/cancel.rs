//! Taking a question back, and leaving.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("cancel").await;
}
