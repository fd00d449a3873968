//! Reads and writes JSON-RPC errors.

use super::fields::ObjectReader;
use super::object::{ObjectWriter, WriteJson, nest};
use crate::{Dialect, ProtocolError, ProtocolVersion, RemoteError, RequestId};

/// Appends an error response. Without an id the member is omitted if the version allows that, else it is `null`.
pub fn write_protocol_error(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    id: Option<&RequestId>,
    error: &ProtocolError,
) {
    let object = ObjectWriter::open(out, version).field("jsonrpc", "2.0");
    let object = match id {
        None if version.behavior().error_id_optional => object,
        id => object.field("id", &id),
    };
    object.field("error", error).close();
}

/// Appends an error response for a client that sends no protocol version.
pub fn write_unversioned_error(
    out: &mut Vec<u8>,
    dialect: &Dialect,
    id: Option<&RequestId>,
    error: &ProtocolError,
) {
    let version = ProtocolVersion::FALLBACK;
    let error = nest(|object| {
        object
            .field("code", &dialect.code(error))
            .field("message", &dialect.message(error))
            .optional("data", &dialect.data(error))
    });
    ObjectWriter::open(out, version).field("jsonrpc", "2.0").field("id", &id).field("error", &error).close();
}

impl WriteJson for ProtocolError {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        ObjectWriter::open(out, version)
            .field("code", &self.code(version))
            .field("message", self.message())
            .optional("data", &self.data())
            .close();
    }
}

/// Reads an error object inside another message.
pub(super) fn read_protocol_error(
    version: ProtocolVersion,
    reader: &ObjectReader<'_>,
) -> Result<ProtocolError, ProtocolError> {
    let [code, message, data] = &reader.pick(["code", "message", "data"]);
    let (code, message, data) = (code.integer()?, message.string()?, data.maybe_json());
    Ok(ProtocolError::from_remote(RemoteError { code, message, data }, version))
}
