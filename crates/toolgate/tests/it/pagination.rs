//! Pages of lists, and how long they stay true.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("page").await;
}
