import java.util.Map;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

/** Paimon's own REST catalog server of its tests: folder, warehouse, token; says its address. */
public class PaimonRestServer {
  public static void main(String[] arguments) throws Exception {
    String folder = arguments[0];
    String warehouse = arguments[1];
    ConfigResponse config =
        new ConfigResponse(Map.of("prefix", "paimon", "warehouse", warehouse), Map.of());
    RESTCatalogServer server =
        new RESTCatalogServer(
            folder, new BearTokenAuthProvider(arguments[2]), config, warehouse);
    server.start();
    System.out.println("listens at " + server.getUrl());
    Thread.currentThread().join();
  }
}
