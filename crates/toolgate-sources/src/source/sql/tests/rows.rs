//! Results: values, shapes and schemas.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn rows_have_three_shapes() {
    for database in test_databases().await {
        let all = database.tool("SELECT id, name, note FROM users WHERE id < :max ORDER BY id");
        let expected =
            json!([{"id": 1, "name": "ann", "note": "first"}, {"id": 2, "name": "bob", "note": null}]);
        let output = all.run(&object(&json!({"max": 3}))).await.unwrap();
        assert_eq!(structured(&output), json!({"rows": expected}), "{:?}", database.driver);
        assert_eq!(output.content, [Content::text(json!({"rows": expected}).to_string())]);

        let row = database.tool_with("SELECT id, name FROM users WHERE id = :id", |spec| {
            spec.result_shape = SqlResultShape::Row
        });
        let output = row.run(&object(&json!({"id": 3}))).await.unwrap();
        assert_eq!(structured(&output), json!({"id": 3, "name": "O'Hara"}));
        assert_eq!(error(&row, json!({"id": 4})).await, "no such row");

        let value = database.tool_with("SELECT name FROM users ORDER BY id", |spec| {
            spec.result_shape = SqlResultShape::Value
        });
        let output = value.run(&Map::new()).await.unwrap();
        assert_eq!(
            (structured(&output), output.content),
            (json!({"value": "ann"}), vec![Content::text("ann")])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_describes_the_rows() {
    for database in test_databases().await {
        let tool = database.tool("SELECT id, name, note, name AS id FROM users WHERE name = :name");
        assert_eq!(tool.output_schema(), None);
        tool.describe().await.unwrap();
        let id = match database.driver {
            Driver::Sqlite => json!({"type": ["integer", "string"]}),
            _ => json!({"type": "integer"}),
        };
        let row = json!({
            "type": "object",
            "properties": {
                "id": id,
                "name": {"type": "string"},
                "note": {"type": ["string", "null"]},
                "id_2": {"type": "string"},
            },
            "required": ["id", "name", "note", "id_2"],
        });
        let schema = tool.output_schema().unwrap();
        assert_eq!(schema["properties"]["rows"]["items"], row, "{:?}", database.driver);
        assert_eq!(schema["required"], json!(["rows"]));

        // One side of an outer join may be NULL, whatever the table declares; so may the row of a scalar subquery.
        database.write("CREATE VIEW seen AS SELECT u.name FROM a LEFT JOIN users u ON u.id = a.n").await;
        for statement in [
            "SELECT u.name FROM a LEFT JOIN users u ON u.id = a.n",
            "SELECT (SELECT name FROM users WHERE id = 99) AS name",
            "SELECT max(name) AS name FROM users WHERE id = 99",
            "SELECT name FROM seen",
        ] {
            let tool = database.tool(statement);
            tool.describe().await.unwrap();
            let schema = tool.output_schema().unwrap();
            let name = &schema.pointer("/properties/rows/items/properties/name").unwrap();
            let may_be_null = name["type"].as_array().is_none_or(|types| types.contains(&json!("null")));
            assert!(may_be_null && !name["type"].is_string(), "{:?} {statement}: {name}", database.driver);
        }

        let wrong = database.tool("SELECT nope FROM users").describe().await.unwrap_err();
        assert!(wrong.contains("nope"), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_keep_their_type() {
    for database in test_databases().await {
        let driver = database.driver;
        let is = database
            .tool("SELECT count(*) AS n FROM users WHERE (:name IS NULL OR name = :name) AND id <= :id");
        for (arguments, n) in [
            (json!({"name": null, "id": 2}), 2),
            (json!({"id": 3}), 3),
            (json!({"name": "bob", "id": 9}), 1),
            (json!({"name": "bob", "id": 1}), 0),
            (json!({"id": -1}), 0),
        ] {
            assert_eq!(rows(&is, arguments.clone()).await, json!([{"n": n}]), "{driver:?} {arguments}");
        }
        let limited = database.tool("SELECT n FROM a ORDER BY n LIMIT $limit");
        assert_eq!(rows(&limited, json!({"limit": 2})).await, json!([{"n": 1}, {"n": 2}]), "{driver:?}");

        database.write("CREATE TABLE big (id BIGINT NOT NULL)").await;
        database
            .write("INSERT INTO big VALUES (9007199254740992), (9007199254740993), (9223372036854775807)")
            .await;
        let one = database.tool("SELECT id FROM big WHERE id = :id");
        for id in [9_007_199_254_740_993_i64, 9_007_199_254_740_992, i64::MAX] {
            assert_eq!(rows(&one, json!({"id": id})).await, json!([{"id": id.to_string()}]), "{driver:?}");
        }
        // A client may send a number back as the string it received.
        let result = rows(&one, json!({"id": "9007199254740993"})).await;
        assert_eq!(result, json!([{"id": "9007199254740993"}]), "{driver:?}");
        let beyond = one.run(&object(&json!({"id": u64::MAX}))).await;
        match driver {
            Driver::MySql => assert_eq!(structured(&beyond.unwrap())["rows"], json!([])),
            _ => assert!(beyond.is_err()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_values_become_json() {
    let database = test_database(Driver::Sqlite).await.unwrap();
    database
        .write("CREATE TABLE t (i INTEGER, r REAL, s TEXT, b BLOB, f BOOLEAN, d DECIMAL(10, 2), at DATETIME)")
        .await;
    database
        .write(
            "INSERT INTO t VALUES (-5, 1.5, 'é', X'00FF', 1, 19.5, '2024-02-29T12:00:00Z'), \
             ('loose', 1e999, CAST(X'61FF62' AS TEXT), 'text', 7, 'x', 5), (1.5, NULL, 12, NULL, 0, NULL, NULL)",
        )
        .await;
    let tool = database.tool("SELECT * FROM t");
    let expected = json!([
        {"i": -5, "r": 1.5, "s": "é", "b": "AP8=", "f": true, "d": 19.5, "at": "2024-02-29T12:00:00Z"},
        {"i": "loose", "r": null, "s": "a\u{fffd}b", "b": "text", "f": 7, "d": "x", "at": 5},
        {"i": "1.5", "r": null, "s": "12", "b": null, "f": false, "d": null, "at": null},
    ]);
    assert_eq!(rows(&tool, json!({})).await, expected);
    let kinds =
        database.tool("SELECT typeof(:a) a, typeof(:b) b, typeof(:c) c, typeof(:d) d, :e AS e, :d AS f");
    let given = json!({"a": 1, "b": 1.5, "c": null, "d": "x", "e": {"k": [1]}});
    let expected =
        json!([{"a": "integer", "b": "real", "c": "null", "d": "text", "e": "{\"k\":[1]}", "f": "x"}]);
    assert_eq!(rows(&kinds, given).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_values_become_json() {
    let Some(database) = test_database(Driver::Postgres).await else { return };
    database.write("CREATE TYPE mood AS ENUM ('sad', 'glad')").await;
    database.write("CREATE TYPE pair AS (a int, b text)").await;
    database.write("CREATE DOMAIN positive AS int CHECK (VALUE > 0)").await;
    for (expression, expected) in [
        ("true", json!(true)),
        ("-5::int2", json!(-5)),
        ("9007199254740993", json!("9007199254740993")),
        ("0.1::float4", json!(0.1)),
        ("'NaN'::float8", json!(null)),
        ("12345678901234567890.123400::numeric", json!("12345678901234567890.123400")),
        ("-0.00012::numeric", json!("-0.00012")),
        ("1e20::numeric", json!("100000000000000000000")),
        ("0::numeric", json!("0")),
        ("0.5::numeric(10,4)", json!("0.5000")),
        ("'NaN'::numeric", json!("NaN")),
        ("'x'::char(3)", json!("x  ")),
        ("'{\"a\": 9007199254740993}'::jsonb", json!({"a": "9007199254740993"})),
        ("'[1, \"é\"]'::json", json!([1, "é"])),
        ("'123e4567-e89b-12d3-a456-426614174000'::uuid", json!("123e4567-e89b-12d3-a456-426614174000")),
        ("'\\x00ff'::bytea", json!("AP8=")),
        ("'2024-02-29'::date", json!("2024-02-29")),
        ("'infinity'::date", json!("infinity")),
        ("'0044-03-15 BC'::date", json!("-000043-03-15")),
        ("'12:30:01.5'::time", json!("12:30:01.5")),
        ("'12:30+02'::timetz", json!("12:30:00+02:00")),
        ("'1999-12-31 23:59:59.000001'::timestamp", json!("1999-12-31T23:59:59.000001")),
        ("'2024-06-01 12:00+02'::timestamptz", json!("2024-06-01T10:00:00Z")),
        ("'1 year 2 months 3 days 04:05:06.5'::interval", json!("P1Y2M3DT4H5M6.5S")),
        ("'192.168.0.1/24'::inet", json!("192.168.0.1/24")),
        ("'::1'::inet", json!("::1")),
        ("'glad'::mood", json!("glad")),
        ("3::positive", json!(3)),
        ("ROW(1, 'x')::pair", json!({"a": 1, "b": "x"})),
        ("'[1,5)'::int4range", json!("[1,5)")),
        ("'(,2024-01-01]'::tsrange", json!("(,2024-01-01T00:00:00]")),
        ("ARRAY[1, NULL, 3]", json!([1, null, 3])),
        ("ARRAY[['a', 'b'], ['c', 'd']]", json!([["a", "b"], ["c", "d"]])),
        ("'{}'::uuid[]", json!([])),
        ("ARRAY['sad', 'glad']::mood[]", json!(["sad", "glad"])),
        ("NULL::int", json!(null)),
    ] {
        assert_eq!(database.query_value(&format!("SELECT {expression}")).await, expected, "{expression}");
    }
    let point = database.tool("SELECT point(1, 2) AS p");
    let message = error(&point, json!({})).await;
    assert_eq!(
        message,
        "column p: the type POINT has no JSON form; cast it in the query, for example to text"
    );

    // Invalid UTF-8 can only be in a database without an encoding, and the server does not return it.
    let name = format!("ascii_{}", std::process::id());
    database.write(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII'")).await;
    let mut spec = database.spec();
    spec.url = format!("{}/{name}", database.address.rsplit_once('/').unwrap().0);
    let query =
        SqlSpec::new(QuerySource::Static("SELECT convert_from('\\x61ff62', 'SQL_ASCII') AS t".to_owned()));
    let broken = SqlBackend::new(query, SqlPool::new(spec).unwrap(), &json!({})).unwrap();
    assert!(error(&broken, json!({})).await.contains("does not have the form"));
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_parses_arguments_as_the_expected_type() {
    let Some(database) = test_database(Driver::Postgres).await else { return };
    database.write("CREATE TYPE mood AS ENUM ('sad', 'glad')").await;
    database
        .write("CREATE TABLE t (u uuid, at timestamptz, n numeric, m mood, j jsonb, b bytea, s smallint, v int[])")
        .await;
    database
        .write(
            "INSERT INTO t VALUES ('123e4567-e89b-12d3-a456-426614174000', '2024-01-01 00:00Z', 0.1, 'glad', \
             '{\"k\": [1]}', '\\x00ff', 5, '{1,2,3}')",
        )
        .await;
    for (condition, value) in [
        ("u = :x", json!("123e4567-e89b-12d3-a456-426614174000")),
        ("at = :x", json!("2024-01-01T01:00:00+01:00")),
        ("n = :x", json!(0.1)),
        ("n = :x", json!("0.1")),
        ("m = :x", json!("glad")),
        ("j @> :x", json!({"k": [1]})),
        ("b = :x", json!("AP8=")),
        ("s = :x", json!(5)),
        ("s = ANY(:x)", json!([4, 5])),
        ("m = ANY(:x::mood[])", json!(["glad", null])),
        ("v[1:2] = :x", json!([1, 2])),
        ("v[:x : s] = '{2,3}'", json!(2)),
        ("'a' || :x = 'ab\"c\\'", json!("b\"c\\")),
        ("(:x IS NULL) = false", json!("anything")),
        ("s BETWEEN 1 AND :x", json!(9)),
        ("(:x)::boolean", json!(true)),
    ] {
        let tool = database.tool(&format!("SELECT count(*) AS n FROM t WHERE {condition}"));
        assert_eq!(rows(&tool, json!({"x": value})).await, json!([{"n": 1}]), "{condition} {value}");
    }
    for (condition, value) in
        [("u = :x", json!("no uuid")), ("s = :x", json!(40_000)), ("s = :x", json!("1 OR 1=1"))]
    {
        let tool = database.tool(&format!("SELECT count(*) AS n FROM t WHERE {condition}"));
        let message = error(&tool, json!({"x": value})).await;
        assert!(message.contains("does not have the form"), "{condition}: {message}");
    }
    // A changed table is described again, also for `SELECT *`.
    let all = database.tool("SELECT * FROM t");
    rows(&all, json!({})).await;
    let tool = database.tool("SELECT s FROM t WHERE s = :s");
    assert_eq!(rows(&tool, json!({"s": 5})).await, json!([{"s": 5}]));
    database.write("ALTER TABLE t ALTER COLUMN s TYPE text USING s::text").await;
    assert_eq!(rows(&tool, json!({"s": "5"})).await, json!([{"s": "5"}]));
    assert_eq!(rows(&all, json!({})).await[0]["s"], json!("5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_values_become_json() {
    let Some(database) = test_database(Driver::MySql).await else { return };
    database
        .write(
            "CREATE TABLE t (t TINYINT, f BOOLEAN, u BIGINT UNSIGNED, m MEDIUMINT, d DECIMAL(30, 4), r FLOAT, \
             x DOUBLE, y YEAR, bits BIT(10), day DATE, at DATETIME(6), stamp TIMESTAMP NULL, span TIME(3), \
             e ENUM('sad', 'glad'), s SET('a', 'b'), j JSON, b VARBINARY(9), l VARCHAR(9) CHARACTER SET latin1, \
             bin VARCHAR(9) COLLATE utf8mb4_bin, g CHAR(3), z LONGBLOB)",
        )
        .await;
    database
        .write(
            "INSERT INTO t VALUES (-5, 1, 18446744073709551615, -70000, 12345678901234567890.1234, 0.1, 1e100, 2024, \
             b'1000000001', '2024-02-29', '1999-12-31 23:59:59.000001', '2024-06-01 12:00:00', '-30:01:02.5', \
             'glad', 'a,b', '{\"k\": [1]}', X'00FF', 'é', 'bin', 'x', X'FF')",
        )
        .await;
    database.write("INSERT INTO t (t) VALUES (NULL)").await;
    let tool = database.tool("SELECT * FROM t");
    let found = rows(&tool, json!({})).await;
    let expected = json!({
        "t": -5, "f": true, "u": "18446744073709551615", "m": -70000, "d": "12345678901234567890.1234", "r": 0.1,
        "x": 1e100, "y": 2024, "bits": 513, "day": "2024-02-29", "at": "1999-12-31T23:59:59.000001",
        "stamp": "2024-06-01T12:00:00Z", "span": "-30:01:02.5", "e": "glad", "s": "a,b", "j": "{\"k\": [1]}",
        "b": "AP8=", "l": "é", "bin": "bin", "g": "x", "z": "/w==",
    });
    assert_eq!(found[0], expected);
    assert!(object(&found[1]).values().all(Value::is_null));
    let echo = database.tool("SELECT :a AS a, :b AS b, :c AS c, :d AS d, :e AS e");
    let given = json!({"a": true, "b": 1.5, "c": [1, "x"], "d": u64::MAX, "e": "q'\\\"`"});
    let expected = json!([{"a": 1, "b": 1.5, "c": "[1,\"x\"]", "d": "18446744073709551615", "e": "q'\\\"`"}]);
    assert_eq!(rows(&echo, given).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_the_first_column() {
    for database in test_databases().await {
        let tool = database.tool("SELECT name, id FROM users WHERE name LIKE :prefix || '%' ORDER BY id");
        let found = tool.complete(&object(&json!({"prefix": "b"}))).await.unwrap();
        assert_eq!(found, ["bob"], "{:?}", database.driver);
        let many = database.tool("SELECT n FROM a WHERE :prefix = '' ORDER BY n");
        assert_eq!(many.complete(&object(&json!({"prefix": ""}))).await.unwrap().len(), 100);
    }
}
