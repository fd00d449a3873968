//! Work that outlives its call, as clients of each revision see it.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::all("tasks").await;
}
