//! One message a line, in all five revisions.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("stdio").await;
}
