//! One message per line, in all five protocol versions.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("stdio").await;
}
