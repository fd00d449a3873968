-- The contents of catalog.db. To rebuild it: `rm -f catalog.db && sqlite3 catalog.db < catalog.sql`.
PRAGMA page_size = 512;
CREATE TABLE product (
  sku TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  price REAL NOT NULL,
  stock INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO product VALUES
  ('CUP-1', 'Cup without a handle', 9.5, 40),
  ('CUP-2', 'Cup with a handle', 11, 0),
  ('TEA-B', 'Black tea, 100 g', 6.9, 120),
  ('TEA-G', 'Green tea, 100 g', 8.4, 75),
  ('TEA-W', 'White tea, 50 g', 14, 12);
