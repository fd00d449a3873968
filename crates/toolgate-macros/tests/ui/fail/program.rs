toolgate::main!(5);
