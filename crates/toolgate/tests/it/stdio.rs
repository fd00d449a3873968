//! One message a line, in all five revisions.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::all("stdio").await;
}
