//! One message a line, in all five revisions.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("stdio").await;
}
