use toolgate::prelude::*;

struct Kit;

#[server]
impl Kit {
    #[tool]
    fn change(&mut self) {}
}

#[server]
impl Kit {
    fn unmarked(&self) {}
}

#[server]
impl Clone for Kit {
    fn clone(&self) -> Kit {
        Kit
    }
}

#[server("A box")]
impl Kit {
    #[tool]
    fn open(&self) {}
}

#[server(instruction = "A box")]
impl Kit {
    #[tool]
    fn shut(&self) {}
}

#[server]
struct NoBlock;

fn main() {}
